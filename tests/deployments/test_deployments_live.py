"""What keepers say each second: numbers for pages, rows only where something has changed."""

import json
import time
from datetime import timedelta

import pytest
from django.utils import timezone

from console import streams
from deployments.models import Deployment, Job, Replica, Revision, Server
from deployments.services import deployment_json, deployments, replica_events, replica_live, replica_now
from tests.console.test_ingest import Turns

pytestmark = pytest.mark.django_db


@pytest.fixture
def replica(server):
    made = Deployment.objects.create(name="tiny", replicas=2)
    first = Revision.objects.create(deployment=made, n=1)
    Deployment.objects.update(revision=first)
    return Replica.objects.create(deployment=made, revision=first, n=1, server=server, state="starting", path="/m")


def now_of(replica, state="ready", **more):
    metrics = {"running": 2, "waiting": 0, "kv_pct": 12.5, "generation_tokens_s": 40.0}
    return {"replica": replica.pk, "state": state, "pid": 7, "restarts": 0, "at": time.time(), "metrics": metrics,
            "progress": None, "reason": None, "facts": {"version": "0.32.0"}, "kept": True, **more}  # fmt: skip


def sample(*engines):
    return json.dumps({"type": "sample", "seq": 1, "t": time.time(), "npus": [], "processes": [], "engines": engines})


@pytest.fixture
def turns(valkey):
    return Turns(valkey.url)


def send(valkey, server, *engines):
    valkey.client().xadd(streams.telemetry(server.pk), {"d": sample(*engines)})


def test_a_sample_brings_numbers_to_redis_and_the_state_to_the_row(turns, valkey, server, replica):
    send(valkey, server, now_of(replica))
    turns.turn()
    replica.refresh_from_db()
    assert (replica.state, replica.engine["pid"], replica.engine["facts"]) == ("ready", 7, {"version": "0.32.0"})
    said = replica_live.read([replica.pk])[replica.pk]
    assert said["metrics"]["running"] == 2 and said["metrics"]["ttft_ms"] is None


def test_a_second_that_brings_numbers_alone_writes_no_row(server, replica, django_assert_num_queries):
    live = replica_live.Live()
    live.know()

    class Pipeline:
        def hset(self, *args, **more):
            pass

    live.take(server.pk, [now_of(replica)], 1000.0)
    live.each_second(Pipeline(), set())
    live.take(server.pk, [now_of(replica, metrics={"running": 9})], 1001.0)
    with django_assert_num_queries(0):
        assert live.each_second(Pipeline(), set()) == []


def test_a_server_cannot_speak_for_a_replica_of_another(turns, valkey, server, replica):
    other = Server.objects.create(name="kp-02", last_seen_at=timezone.now())
    send(valkey, other, now_of(replica))
    turns.turn()
    replica.refresh_from_db()
    assert replica.state == "starting" and replica_live.read([replica.pk]) == {}


@pytest.mark.parametrize(
    "engines",
    ["ready", [7], [{}], [{"replica": "1", "state": "ready"}], [{"replica": 2**70, "state": "ready"}], {"replica": 1},
     [{"replica": 1, "state": {"a": 1}}], [{"replica": True, "state": "ready"}]],
)  # fmt: skip
def test_odd_engines_break_nothing(turns, valkey, server, replica, engines):
    message = json.dumps({"type": "sample", "seq": 1, "npus": [], "processes": [], "engines": engines})
    valkey.client().xadd(streams.telemetry(server.pk), {"d": message})
    turns.turn()
    replica.refresh_from_db()
    assert replica.state == "starting" and valkey.client().hget(streams.FLEET_NOW, str(server.pk))


def test_what_a_keeper_that_is_no_more_said_last_is_not_now(turns, valkey, server, replica):
    send(valkey, server, now_of(replica, kept=False))
    turns.turn()
    assert replica_live.read([replica.pk]) == {}


def test_a_sample_made_before_an_event_sets_nothing_back(replica):
    heard = lambda **more: replica_events.heard(  # noqa: E731
        Replica.objects.select_related("deployment").get(), replica_now.clean(now_of(replica, **more))
    )
    assert heard(at=1000.0) and not heard(state="loading", at=999.0)
    assert Replica.objects.get().state == "ready"
    assert heard(state="loading", at=900.0), "its clock was set back: what is heard now is so now"


def test_a_failure_while_its_job_is_under_way_is_told_by_the_jobs_end(replica, operator):
    job = Job.objects.create(server=replica.server, kind="serve", not_after=timezone.now(), state="running")
    Replica.objects.update(serve_job=job)
    row = Replica.objects.select_related("deployment", "serve_job").get()
    replica_events.heard(row, replica_now.clean(now_of(replica, "failed", reason=["崩溃", "crashed"])))
    assert (row.state, row.reason[1]) == ("starting", "crashed")
    job.state, job.reason = "failed", ["显存不足", "not enough memory"]
    replica_events.job_ended(job)
    replica.refresh_from_db()
    assert (replica.state, replica.reason[1]) == ("failed", "not enough memory")


def test_an_engine_that_somebody_stops_on_the_server_is_no_wish_of_ours(replica):
    row = Replica.objects.select_related("deployment").get()
    replica_events.heard(row, replica_now.clean(now_of(replica, "stopped")))
    assert row.state == "failed" and "not by the console" in row.reason[1]


def test_a_replica_that_drains_does_so_until_it_has_ended(replica):
    Replica.objects.update(state="draining")
    row = Replica.objects.select_related("deployment").get()
    replica_events.heard(row, replica_now.clean(now_of(replica)))
    assert row.state == "draining"


def test_who_is_silent_is_not_heard_and_keeps_its_state(valkey, server, replica):
    Replica.objects.update(state="ready")
    kept = {"seen": time.time() - 60, "state": "ready", "at": 1, "metrics": {"running": 4}}
    valkey.client().hset(streams.REPLICAS_NOW, str(replica.pk), json.dumps(kept))
    shown = deployment_json.of(deployments.find("tiny"))
    (row,) = shown["replica_set"]
    assert (row["state"], row["heard"], row["metrics"], shown["metrics"]["running"]) == ("ready", False, None, None)


def test_an_open_page_gets_the_summed_numbers_once_a_second(turns, valkey, server, replica):
    second = Replica.objects.create(
        deployment=replica.deployment, revision=replica.revision, n=2, server=server, state="ready", path="/m"
    )
    redis = valkey.client()
    listener = redis.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(streams.live(f"deployment:{replica.deployment_id}"))
    listener.get_message(timeout=1)
    for _ in range(3):
        send(valkey, server, now_of(replica), now_of(second))
        turns.turn()
    turns.turn(1.1)
    got = [json.loads(m["data"]) for m in iter(lambda: listener.get_message(timeout=0.3), None)]
    got = [m for m in got if m["type"] == "deployment"]
    assert len(got) == 2, "the first at once, the others together"
    metrics = got[-1]["data"]["metrics"]
    found = [metrics[name] for name in ("known", "running", "generation_tokens_s", "kv_pct", "ttft_ms")]
    assert found == [2, 4, 80.0, 12.5, None]
    assert "api_key" not in json.dumps(got)


def test_heard_at_is_noted_now_and_then(server, replica):
    live = replica_live.Live()
    live.know()

    class Pipeline:
        def hset(self, *args, **more):
            pass

    live.take(server.pk, [now_of(replica)], 1000.0)
    live.each_second(Pipeline(), set())
    Replica.objects.update(heard_at=timezone.now() - timedelta(hours=1))
    live.take(server.pk, [now_of(replica)], 1020.0)
    live.each_second(Pipeline(), set())
    assert timezone.now() - Replica.objects.get().heard_at > timedelta(minutes=30)
    live.take(server.pk, [now_of(replica)], 1031.0)
    live.each_second(Pipeline(), set())
    assert timezone.now() - Replica.objects.get().heard_at < timedelta(minutes=1)
