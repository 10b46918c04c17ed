"""Benchmarks as rows, pages and REST: asked for, told, judged, compared, exported."""

import base64
import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
from auditlog.models import LogEntry
from django.contrib.staticfiles import finders
from django.utils import timezone, translation

from console.errors import Conflict, Invalid
from console.models import ApiToken, User
from deployments.agent import signing
from deployments.models import Attempt, Benchmark, Gateway, Job
from deployments.services import benchmarks, jobs, told
from tests.answers import whole
from tests.conftest import ROOT
from tests.deployments.benchmark_rows import STACKS, replica, server

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
ASK = {"degrees": "1, 4", "prompts": 8, "input_len": 100, "output_len": 20}


@pytest.fixture(autouse=True)
def in_english(client):
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    with translation.override("en"):
        yield


@pytest.fixture
def operator():
    return User.objects.create(username="olga", role="operator")


@pytest.fixture
def viewer():
    return User.objects.create(username="victor", role="viewer")


def point(degree, rate=100.0, tpot=10.0, **more):
    times = {name: {"mean": 50, "p50": 40, "p90": 60, "p99": 90} for name in benchmarks.TIMES}
    times["tpot_ms"] = {"mean": tpot, "p50": tpot, "p90": tpot, "p99": tpot}
    counts = {"concurrency": degree, "prompts": 8, "completed": 8, "failed": 0, "others": 0}
    rates = {"duration_s": 2.5, "requests_s": 3.2, "output_tokens_s": rate, "total_tokens_s": 6 * rate}
    return {**counts, **rates, "reason": None, **times, **more}


def attempt_of(row):
    return row.job.attempts.last()


def run(of, by, *points, degrees=None, **params):
    """A benchmark of that replica with what its job has told."""
    row = benchmarks.queue(of.deployment, {**ASK, **params}, by=by)
    for one in points:
        told.hand_over(attempt_of(row), "benchmark_point", one)
    if points:
        wanted = degrees or [one["concurrency"] for one in points]
        told.hand_over(attempt_of(row), "benchmark", {"degrees": wanted, "passed": True})
    Job.objects.filter(pk=row.job_id).update(state="succeeded", locks=[])
    return benchmarks.find(row.pk)


def test_the_console_fills_in_the_engine_and_seals_its_key(operator):
    of = replica(engine={"facts": {"max_model_len": 4096}})
    row = benchmarks.queue(of.deployment, ASK, by=operator)
    params = row.job.params
    assert params["base_url"] == "http://127.0.0.1:18003"
    assert (params["model"], params["tokenizer"]) == ("qwen-chat", "/data/models/model-qwen")
    assert (params["stacks"], params["device"], params["context"]) == (STACKS, "npu", 4096)
    assert of.deployment.api_key not in json.dumps(params)
    opened = signing.unseal(of.server.key, base64.b64decode(params["sealed"]))
    assert json.loads(opened) == {"api_key": of.deployment.api_key}
    assert "sealed" not in row.asked and row.asked["degrees"] == "1, 4"
    assert LogEntry.objects.filter(additional_data__verb="benchmark.queued").count() == 1


def test_who_is_not_ready_is_not_measured(operator):
    of = replica(state="loading")
    with pytest.raises(Conflict) as refused:
        benchmarks.queue(of.deployment, ASK, by=operator)
    assert refused.value.code == "no_replica"
    with pytest.raises(Conflict):
        jobs.queue_job(of.server, "benchmark", {**ASK, "replica": of.pk}, by=operator)


def test_a_replica_of_another_server_is_refused(operator):
    of = replica()
    with pytest.raises(Conflict):
        jobs.queue_job(server("kp-02"), "benchmark", {**ASK, "replica": of.pk}, by=operator)


def test_a_request_longer_than_the_context_is_refused_before_the_job(operator):
    of = replica(engine={"facts": {"max_model_len": 256}})
    with pytest.raises(Invalid) as refused:
        benchmarks.queue(of.deployment, {**ASK, "input_len": 250}, by=operator)
    assert "270 tokens" in refused.value.what
    assert not Benchmark.objects.exists() and not Job.objects.exists()
    assert benchmarks.defaults(of)["input_len"] == 128


def test_its_gateway_is_asked_with_the_key_that_is_given(operator):
    of = replica()
    with pytest.raises(Conflict):
        benchmarks.queue(of.deployment, ASK, by=operator, gateway_key="sk-1")
    Gateway.objects.create(deployment=of.deployment, server=of.server, address="10.0.0.5", port=18201, state="ready")
    params = benchmarks.queue(of.deployment, ASK, by=operator, gateway_key="sk-1").job.params
    assert params["base_url"] == "http://10.0.0.5:18201"
    assert json.loads(signing.unseal(of.server.key, base64.b64decode(params["sealed"]))) == {"api_key": "sk-1"}
    assert "sk-1" not in json.dumps(params)


def test_the_verdict_is_made_here_and_not_believed(operator):
    of = replica()
    slow = run(of, operator, point(1), point(4, tpot=20.0), target_concurrency=4, target_tpot_ms=15)
    assert slow.passed is False and slow.ended_at
    fast = run(of, operator, point(1), point(4), target_concurrency=4, target_tpot_ms=15)
    assert fast.passed is True
    assert run(of, operator, point(1)).passed is None
    assert run(of, operator, point(1, completed=7, failed=1)).passed is False
    missing = run(of, operator, point(1), degrees=[1, 4], target_tpot_ms=15)
    assert missing.passed is False


@pytest.mark.parametrize(
    "data", [{}, {"concurrency": 0}, {**point(2), "completed": -1}, {**point(2), "concurrency": "4"}]
)
def test_what_is_no_point_changes_nothing(operator, data):
    row = benchmarks.queue(replica().deployment, ASK, by=operator)
    told.hand_over(attempt_of(row), "benchmark_point", data)
    assert benchmarks.find(row.pk).points == []


def test_numbers_of_servers_are_cleaned(operator):
    row = benchmarks.queue(replica().deployment, ASK, by=operator)
    strange = {**point(4), "output_tokens_s": float("inf"), "ttft_ms": ["x"], "reason": ["<b>", "x" * 9000], "more": 1}
    told.hand_over(attempt_of(row), "benchmark_point", strange)
    kept = benchmarks.find(row.pk).points[0]
    assert kept["output_tokens_s"] is None and kept["ttft_ms"]["p90"] is None
    assert len(kept["reason"][1]) == 500 and "more" not in kept


def test_a_degree_that_is_measured_again_replaces_what_was(operator):
    row = benchmarks.queue(replica().deployment, ASK, by=operator)
    for rate in (10.0, 20.0):
        told.hand_over(attempt_of(row), "benchmark_point", point(4, rate=rate))
    told.hand_over(attempt_of(row), "benchmark_point", point(1))
    assert [(one["concurrency"], one["output_tokens_s"]) for one in benchmarks.find(row.pk).points] == [
        (1, 100),
        (4, 20),
    ]


def test_a_job_of_another_kind_tells_of_no_benchmark():
    of = replica()
    job = Job.objects.create(server=of.server, kind="check", not_after=timezone.now() + timedelta(days=1))
    told.hand_over(Attempt.objects.create(pk="a1-1-1", job=job, n=1), "benchmark_point", point(1))
    assert not Benchmark.objects.exists()


def test_two_runs_are_held_against_each_other(operator):
    before = run(replica(), operator, point(1), point(4, rate=200.0, tpot=20.0))
    after = run(replica("qwen-w8a8", port=18004), operator, point(4, rate=300.0, tpot=10.0), point(8), input_len=200)
    pair = benchmarks.compare(before, after)
    assert [one.concurrency for one in pair] == [4]
    rate, _ttft, tpot, _e2el = pair[0].changes
    assert (rate.pct, rate.better, tpot.pct, tpot.better) == (50.0, True, -50.0, True)
    assert benchmarks.unlike(before, after) == ["input_len"]
    assert before in benchmarks.comparable(after)


def test_the_page_shows_form_figures_and_who_disturbed(client, operator):
    of = replica(engine={"metrics": {"running": 5, "waiting": 1}, "facts": {"max_model_len": 4096}})
    run(of, operator, point(1), point(4, others=3, tpot=30.0), target_concurrency=4, target_tpot_ms=15)
    client.force_login(operator)
    page = client.get("/deployments/qwen/benchmarks/").content.decode()
    assert "The targets were missed at a concurrency of 4." in page
    assert "TPOT p90 is 30.0 ms, and the target is 15 ms." in page
    assert "Others used the engine meanwhile" in page and "has 6 requests of others" in page
    assert 'value="1024"' in page and "Queue the benchmark" in page and "plotly/plotly.min.js" in page


def test_the_page_queues_and_refuses_in_words(client, operator, viewer):
    replica()
    client.force_login(operator)
    form = {"full": "1", "where": "", **{f"p-{name}": value for name, value in ASK.items()}}
    bad = client.post("/deployments/qwen/benchmarks/", {**form, "p-degrees": "many"})
    assert bad.status_code == 422 and "must look like" in bad.content.decode()
    good = client.post("/deployments/qwen/benchmarks/", form)
    row = Benchmark.objects.get()
    assert good.headers["Location"].endswith(f"?run={row.pk}") and row.by == operator
    assert "Under way" in client.get(good.headers["Location"]).content.decode()
    client.force_login(viewer)
    assert client.post("/deployments/qwen/benchmarks/", form).status_code == 403
    page = client.get("/deployments/qwen/benchmarks/").content.decode()
    assert "Queue the benchmark" not in page and "Under way" in page
    assert client.get("/deployments/nothing/benchmarks/").status_code == 404
    assert client.get("/deployments/qwen/benchmarks/?run=99").status_code == 404


def test_a_run_is_had_as_files(client, viewer, operator):
    row = run(replica(), operator, point(1), point(4))
    client.force_login(viewer)
    text = whole(client.get(f"/deployments/qwen/benchmarks/{row.pk}.csv")).decode()
    head, first, *_rest = text.lstrip("\ufeff").splitlines()
    assert dict(zip(head.split(","), first.split(","), strict=True))["tpot_p90_ms"] == "10.0"
    told_of = client.get(f"/deployments/qwen/benchmarks/{row.pk}.json").json()
    assert [one["concurrency"] for one in told_of["points"]] == [1, 4] and "sealed" not in json.dumps(told_of)
    assert client.get(f"/deployments/other/benchmarks/{row.pk}.csv").status_code == 404


def test_rest_measures_lists_and_compares(client, operator):
    of = replica()
    _row, token = ApiToken.make(operator, "operator")
    header = {"Authorization": f"Bearer {token}"}
    made = client.post("/api/v1/deployments/qwen/benchmarks", {"params": ASK}, "application/json", headers=header)
    assert made.status_code == 201 and made.json()["state"] == "queued"
    assert client.get("/api/v1/deployments/qwen/benchmarks", headers=header).json()["benchmarks"][0]["replica"] == of.n
    Job.objects.update(locks=[])
    before, after = run(of, operator, point(4)), run(of, operator, point(4, rate=50.0))
    told_of = client.get(f"/api/v1/benchmarks/{after.pk}/compare/{before.pk}", headers=header).json()
    assert told_of["pairs"][0]["changes"][0]["pct"] == -50.0 and told_of["unlike"] == []
    assert client.get(f"/api/v1/benchmarks/{after.pk}", headers=header).json()["passed"] is None
    assert client.get("/api/v1/benchmarks/999", headers=header).status_code == 404


def test_plotly_comes_from_its_package_and_leaves_its_styles_to_ours():
    found = finders.find("plotly/plotly.min.js")
    assert found.endswith("plotly/package_data/plotly.min.js")
    ours = (ROOT / "static/js/plotly.js").read_text()
    text = Path(found).read_text()
    assert re.search(r'MAP_STYLES = "(\w+)"', ours)[1] in text and "no-inline-styles" in text
    assert finders.find("plotly/widgetbundle.js") is None
