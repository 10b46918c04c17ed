"""The page of queues, django-rq's own pages, and the buttons that change keys and let a server back in."""

import json
import time
from datetime import timedelta

import pytest
from django.utils import timezone
from rq.queue import Queue
from rq.serializers import JSONSerializer

from console import streams
from console.models import User
from deployments.models import Attempt, Job, JobState, Order, Rotation, Server
from deployments.services import enrol, queue_page, quota
from deployments.steps import Text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
ENGLISH = {"accept-language": "en"}


@pytest.fixture
def as_role(client):
    def sign_in(role):
        client.force_login(User.objects.create_user(f"the-{role}", role=role))
        return client

    return sign_in


@pytest.fixture
def redis_client(valkey):
    return valkey.client()


def make_server(name="kp-01", **more):
    return Server.objects.create(name=name, last_seen_at=timezone.now(), **more)


def make_job(server, minutes=1, **more):
    now = timezone.now()
    job = Job.objects.create(
        server=server,
        kind="check",
        created_at=now - timedelta(minutes=minutes),
        not_after=now + timedelta(hours=1),
        **more,
    )
    Attempt.objects.create(pk=f"a{job.pk}-1-00000000", job=job, n=1)
    return job


def beats(redis_client, server, *, ago=1.0, worker=True):
    redis_client.hset(streams.FLEET_BEATS, str(server.pk), json.dumps([time.time() - ago, worker]))


def line_of(page, name):
    return next(line for line in page.lines if line.server.name == name)


def test_depth_age_worker_and_why_each_job_waits(redis_client):
    busy, paused, idle, dead = (make_server(name) for name in ("busy", "paused", "idle", "dead"))
    Server.objects.filter(pk=paused.pk).update(queue_paused=True)
    first = make_job(busy, minutes=9, locks=["stack"])
    held = make_job(busy, minutes=5, locks=["stack"], waiting=True)
    make_job(busy, state=JobState.RUNNING)
    make_job(paused, minutes=20, waiting=True)
    make_job(dead, minutes=2)
    redis_client.rpush(f"h:{busy.pk}:rq:queue:jobs", "a", "b")
    redis_client.rpush(f"h:{busy.pk}:rq:queue:jobs:intermediate", "c")
    beats(redis_client, busy)
    beats(redis_client, dead, worker=False)
    beats(redis_client, idle)
    found = queue_page.page()
    assert [line.server.name for line in found.lines] == ["paused", "busy", "dead"], "longest wait first, idle ones not"
    line = line_of(found, "busy")
    assert (line.depth, line.in_hand, line.worker) == (2, 1, "alive")
    assert (line.counts.queued, line.counts.waiting, line.counts.running) == (2, 1, 1)
    assert [one.job.pk for one in line.jobs] == [first.pk, held.pk]
    assert f"#{first.pk}" in line.jobs[1].words
    assert line_of(found, "dead").worker == "down"
    assert line_of(found, "paused").worker == "unknown"
    assert {line.server.name for line in queue_page.page(every=True).lines} == {"busy", "paused", "idle", "dead"}
    assert [line.server.name for line in queue_page.page(every=True, word="IDL").lines] == ["idle"]
    Server.objects.filter(pk=idle.pk).update(decommissioned_at=timezone.now())
    assert "idle" not in {line.server.name for line in queue_page.page(every=True).lines}, "it is gone"


def test_what_a_server_wrote_instead_of_its_queue_is_unknown_not_an_error(redis_client):
    server = make_server()
    make_job(server)
    redis_client.set(f"h:{server.pk}:rq:queue:jobs", "no list")
    line = queue_page.page().lines[0]
    assert (line.depth, line.in_hand) == (None, 0)


def test_a_thousand_servers_cost_the_same_queries_and_few_trips(django_assert_max_num_queries, redis_client, as_role):
    servers = Server.objects.bulk_create(Server(name=f"kp-{n:04}", last_seen_at=timezone.now()) for n in range(1000))
    now = timezone.now()
    Job.objects.bulk_create(
        Job(server=server, kind="check", waiting=n % 2 == 0, created_at=now, not_after=now + timedelta(hours=1))
        for server in servers
        for n in range(8)
    )
    client = as_role("operator")
    client.get("/queue/")
    before = redis_client.info("stats")["total_commands_processed"]
    with django_assert_max_num_queries(9):
        began = time.monotonic()
        answer = client.get("/queue/", headers=ENGLISH)
        took = time.monotonic() - began
    assert answer.status_code == 200 and took < 3
    assert redis_client.info("stats")["total_commands_processed"] - before < 2 * queue_page.PAGE + 60
    page = answer.content.decode()
    assert page.count('<tr><th scope="row"') == queue_page.PAGE and "1 / 10" in page
    assert "3 more" in page
    assert "10 / 10" in client.get("/queue/?page=99999", headers=ENGLISH).content.decode()


def fail_once():
    raise RuntimeError("the archive is away")


def test_the_consoles_own_queue_its_processes_and_what_failed(redis_client):
    from rq.worker import SimpleWorker

    queue = Queue("default", connection=redis_client, serializer=JSONSerializer)
    queue.enqueue(fail_once)
    worker = SimpleWorker([queue], connection=redis_client, serializer=JSONSerializer)
    worker.work(burst=True, logging_level="CRITICAL")
    queue.enqueue(fail_once)
    worker.register_birth()
    redis_client.set(streams.INGEST_ALIVE, json.dumps({"t": time.time(), "lag_ms": 3.4}))
    own = queue_page.console_queue()
    worker.register_death()
    assert own.depth == 1 and own.oldest and own.failed == 1
    assert own.failures[0].error == "RuntimeError: the archive is away"
    assert own.failures[0].function.endswith("fail_once")
    found = {process.name: process for process in own.processes}
    assert not found["ingest"].is_late and found["ingest"].does
    assert not found["worker"].is_late
    assert found["scheduler"].at is None and found["scheduler"].is_late
    assert own.used_mb is not None


def test_without_redis_the_page_says_so(as_role, settings):
    make_job(make_server())
    client = as_role("operator")
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    page = client.get("/queue/", headers=ENGLISH)
    assert page.status_code == 200 and "Redis does not answer" in page.content.decode()


@pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("operator", 200), ("administrator", 200)])
def test_who_sees_the_page(as_role, role, status):
    client = as_role(role)
    assert client.get("/queue/").status_code == status
    assert ('href="/queue/"' in client.get("/").content.decode()) == (status == 200)


def test_bad_addresses_are_no_errors(as_role):
    client = as_role("operator")
    for query in ("page=x", "page=-1", "page=9999999999", "q=" + "x" * 500, "every=2"):
        assert client.get(f"/queue/?{query}").status_code == 200
    part = client.get("/queue/", headers={"x-part": "1"}).content.decode()
    assert "<html" not in part
    assert "html" in client.get("/queue/", headers={"accept": "application/json"}).json()


@pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("operator", 403), ("administrator", 200)])
def test_rqs_own_pages_are_for_administrators(as_role, redis_client, role, status):
    job = Queue("default", connection=redis_client, serializer=JSONSerializer).enqueue(fail_once)
    client = as_role(role)
    for path in ("", "stats.json", "queues/0/", "queues/0/failed/", f"queues/0/{job.id}/", "workers/0/"):
        assert client.get(f"/administration/rq/{path}").status_code == status, path
    if status == 200:
        assert client.get("/administration/rq/queues/9/").status_code == 404
        assert fail_once.__name__ in client.get("/administration/rq/queues/0/").content.decode()
        client.post(f"/administration/rq/queues/0/{job.id}/delete/", {"post": "yes"})
        assert not redis_client.exists(f"rq:job:{job.id}")
    assert not User.objects.filter(is_staff=True).exists()


def test_rqs_own_pages_know_nothing_of_servers(as_role, redis_client):
    server = make_server()
    redis_client.rpush(f"h:{server.pk}:rq:queue:jobs", "a")
    page = as_role("administrator").get("/administration/rq/").content.decode()
    assert "jobs" not in [word.strip() for word in page.split("<td>")] and f"h:{server.pk}" not in page


def test_nobody_sees_them_signed_out(client):
    for path in ("/queue/", "/administration/rq/", "/servers/keys/", "/administration/"):
        assert client.get(path).status_code == 302


# ---------- keys ----------


def test_an_administrator_changes_the_keys_of_one_and_of_many(as_role, redis_client):
    servers = [make_server(f"kp-0{n}") for n in range(3)]
    silent = Server.objects.create(name="silent")
    Server.objects.create(name="sold", decommissioned_at=timezone.now())
    for server in (*servers, silent):
        enrol.apply_rights(redis_client, server)
    client = as_role("administrator")
    listed = client.get("/servers/keys/", headers=ENGLISH).content.decode()
    assert 'value="silent"' in listed and 'value="sold"' not in listed
    page = client.get(f"/servers/{servers[0].name}/", headers=ENGLISH).content.decode()
    assert "Change its keys" in page
    client.post(f"/servers/{servers[0].name}/keys")
    page = client.get(f"/servers/{servers[0].name}/", headers=ENGLISH).content.decode()
    assert "new ones are on their way" in page and "Change its keys" not in page
    answer = client.post(
        "/servers/keys/", {"server": ["kp-01", "kp-02", "silent", "kp-00"]}, follow=True, headers=ENGLISH
    )
    said = answer.content.decode()
    assert "2 servers get new keys." in said and "silent is silent" in said and "being changed already" in said
    assert Rotation.objects.count() == 3 and Order.objects.filter(do="rotate").count() == 3
    made = Rotation.objects.first()
    assert made.key not in said and made.password not in said
    assert "No server was chosen." in client.post("/servers/keys/", follow=True, headers=ENGLISH).content.decode()
    for server in (*servers, silent):
        redis_client.acl_deluser(streams.user(server.pk))


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_others_change_no_keys(as_role, role):
    server = make_server()
    client = as_role(role)
    assert client.get("/servers/keys/").status_code == 403
    assert client.post("/servers/keys/", {"server": [server.name]}).status_code == 403
    said = client.post(f"/servers/{server.name}/keys", follow=True, headers=ENGLISH).content.decode()
    assert "Only an administrator may change the keys" in said and not Rotation.objects.exists()
    assert "Change its keys" not in said


# ---------- a server that was switched off ----------


def test_its_page_says_why_and_an_operator_switches_it_on_again(as_role, redis_client):
    server = make_server()
    enrol.apply_rights(redis_client, server)
    quota.switch_off(redis_client, server.pk)
    quota.note_cut_off(server.pk, Text("它写得太多", "it <b>wrote</b> too much"))
    redis_client.set(f"h:{server.pk}:junk", "x")
    client = as_role("operator")
    page = client.get(f"/servers/{server.name}/", headers=ENGLISH).content.decode()
    assert "This server is switched off in Redis." in page and "It &lt;b&gt;wrote&lt;/b&gt; too much" in page
    assert "switched off" in client.get("/queue/", headers=ENGLISH).content.decode()
    said = client.post(f"/servers/{server.name}/switch-on", follow=True, headers=ENGLISH).content.decode()
    assert "is switched on again" in said and "switched off in Redis" not in said
    assert "on" in redis_client.acl_getuser(streams.user(server.pk))["flags"]
    assert not redis_client.exists(f"h:{server.pk}:junk")
    said = client.post(f"/servers/{server.name}/switch-on", follow=True, headers=ENGLISH).content.decode()
    assert "is not switched off" in said
    redis_client.acl_deluser(streams.user(server.pk))


def test_a_viewer_may_not(as_role):
    server = make_server(cut_off_at=timezone.now(), cut_off_reason=["满", "full"])
    client = as_role("viewer")
    page = client.get(f"/servers/{server.name}/", headers=ENGLISH).content.decode()
    assert "switched off in Redis" in page and "switch-on" not in page
    client.post(f"/servers/{server.name}/switch-on")
    server.refresh_from_db()
    assert server.cut_off_at
