"""Search over all logs: which are opened, by what time lines count, going on, and what cannot be asked."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from console.models import ApiToken
from deployments.models import AgentChunk, AgentLog, Attempt, Benchmark, Deployment, EngineChunk, EngineLog, Job, Server
from deployments.services import logs_everywhere
from deployments.services.log_search import Query
from deployments.services.logs_everywhere import Asked
from tests.deployments import benchmark_rows
from tests.deployments.test_log_search import written
from tests.job_fixtures import Spool

pytestmark = pytest.mark.django_db


def job_log(server, *texts, at=None, kind="check"):
    job = Job.objects.create(server=server, kind=kind, not_after=timezone.now() + timedelta(days=1))
    attempt = Attempt.objects.create(pk=f"a{job.pk}-1-00000001", job=job, n=1, started_at=at or timezone.now())
    return written(attempt, server, *(("o", text) for text in texts))


def found(text="needle", **more):
    return logs_everywhere.search(Asked(Query(text), **more))


def titles(result):
    return [one.title.split()[0] for one in result.found]


@pytest.fixture
def three(server):
    now = timezone.now()
    other = Server.objects.create(name="kp-02", last_seen_at=now)
    return [
        job_log(server, "a needle", "hay", at=now - timedelta(hours=3)),
        job_log(other, "hay", "needle", "NEEDLE", at=now - timedelta(hours=2)),
        job_log(server, "hay alone", at=now - timedelta(hours=1)),
    ]


def test_logs_that_hold_it_come_newest_first_with_their_lines(three):
    result = found()
    assert titles(result) == [f"#{three[1].job_id}", f"#{three[0].job_id}"]
    assert [(line.n, line.text) for line in result.found[0].lines] == [(2, "needle"), (3, "NEEDLE")]
    assert (result.looked, result.following) == (3, "")
    assert result.found[0].url == f"/jobs/{three[1].job_id}/?attempt=1"


def test_one_server_alone(three):
    assert titles(found(server="kp-02")) == [f"#{three[1].job_id}"]
    assert found(server="nobody").found == []


def test_time_leaves_out_logs_and_lines(three):
    three[1].ended_at = timezone.now() - timedelta(minutes=90)
    three[1].save()
    assert titles(found(until=timezone.now() - timedelta(minutes=150))) == [f"#{three[0].job_id}"]
    line = datetime.fromtimestamp(1_764_500_000, UTC)
    Attempt.objects.update(started_at=line, ended_at=line + timedelta(seconds=5))
    assert len(found(since=line, until=line + timedelta(seconds=1)).found) == 2
    result = found(since=line + timedelta(milliseconds=2), until=line + timedelta(milliseconds=3))
    assert (result.found, result.looked) == ([], 3)
    assert found(since=line + timedelta(hours=1)).looked == 0


def test_it_goes_on_where_the_time_was_over(three):
    seen, before, rounds = [], "", 0
    while True:
        result = logs_everywhere.search(Asked(Query("needle"), before=before), budget_s=-1)
        seen += titles(result)
        rounds, before = rounds + 1, result.following
        if not before:
            break
    assert seen == [f"#{three[1].job_id}", f"#{three[0].job_id}"] and rounds == 3


def test_a_log_with_many_shows_the_first_and_says_so(server):
    job_log(server, *[f"needle {n}" for n in range(50)])
    log = found().found[0]
    assert (len(log.lines), log.more) == (logs_everywhere.MOST_HITS, True)


def test_engines_and_agents_are_searched_too(server):
    replica = benchmark_rows.replica(on=server)
    engine = EngineLog.objects.create(pk=f"e{replica.pk}-1", replica=replica, server=server, n=1, next_line=2)
    agent = AgentLog.objects.create(pk=f"g{server.pk}-1", server=server, n=1, next_line=2, started_at=timezone.now())
    chunk = Spool("x").chunk(("o", "the needle"))[1][b"z"]
    EngineChunk.objects.create(log=engine, first=1, n=1, data=chunk)
    AgentChunk.objects.create(log=agent, first=1, n=1, data=chunk)
    assert {one.id for one in found().found} == {engine.pk, agent.pk}
    assert [one.id for one in found(deployment=replica.deployment.name).found] == [engine.pk]
    assert [one.id for one in found(kind="agents").found] == [agent.pk]
    assert Deployment.objects.count() == 1


def test_deleted_logs_are_not_opened(three):
    Attempt.objects.filter(pk=three[1].pk).update(pruned_at=timezone.now())
    assert found().looked == 2


def test_a_fixed_number_of_queries_for_each_log(three, django_assert_max_num_queries):
    with django_assert_max_num_queries(3 + 2 * 3):
        found()


def test_the_page_links_each_line_and_refuses_in_words(three, viewer):
    client = Client()
    client.force_login(viewer)
    client.cookies["django_language"] = "en"
    assert "All logs in one search" in client.get("/logs/").content.decode()
    shown = client.get("/logs/", {"q": "needle"}).content.decode()
    assert f'href="/jobs/{three[1].job_id}/?attempt=1#L2"' in shown and "3 logs looked at" in shown
    assert "It stands in no log" in client.get("/logs/", {"q": "nowhere"}).content.decode()
    for bad in (
        {"q": "(", "regex": "1"},
        {"q": "x", "since": "soon"},
        {"q": "x", "kind": "secrets"},
        {"q": "x", "before": "_"},
    ):
        assert client.get("/logs/", bad).status_code == 422, bad


def test_hostile_text_is_shown_and_not_obeyed(server, viewer):
    job_log(server, "needle <script>alert(1)</script> \x1b[31mred")
    client = Client()
    client.force_login(viewer)
    shown = client.get("/logs/", {"q": "needle"}).content.decode()
    assert "&lt;script&gt;" in shown and "\x1b" not in shown


def test_rest_searches_and_goes_on(three, viewer):
    _row, token = ApiToken.make(viewer, "viewer")
    rest = Client(headers={"Authorization": f"Bearer {token}"})
    told = rest.get("/api/v1/logs", {"q": "needle"}).json()
    assert [len(one["lines"]) for one in told["logs"]] == [2, 1] and told["following"] is None
    assert rest.get("/api/v1/logs", {"q": "x", "until": "never"}).status_code == 422
    assert rest.get("/api/v1/logs").status_code == 422


def test_a_deployment_has_the_jobs_of_its_gateway_and_its_benchmarks(server):
    replica = benchmark_rows.replica(on=server)
    name = replica.deployment.name
    ours, theirs = job_log(server, "needle", kind="gateway"), job_log(server, "needle", kind="gateway")
    measured, other = job_log(server, "needle", kind="benchmark"), job_log(server, "needle")
    Job.objects.filter(pk=ours.job_id).update(params={"gateway": 1, "deployment": name})
    Job.objects.filter(pk=theirs.job_id).update(params={"gateway": 2, "deployment": "another"})
    Job.objects.filter(pk=other.job_id).update(params={"deployment": name})
    Benchmark.objects.create(deployment=replica.deployment, job_id=measured.job_id)
    assert {one.id for one in found(deployment=name).found} == {ours.pk, measured.pk}
