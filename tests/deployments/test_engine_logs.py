"""Pieces of engines' logs on their way into rows: once, in order, and only from the replica's own servers."""

import json
from datetime import timedelta

import django_rq
import pytest
from django.utils import timezone

from console import streams
from deployments import ingest
from deployments.models import Deployment, EngineChunk, EngineLog, Replica, Revision, Server
from deployments.services import engine_logs, logs, remedy_asking
from deployments.topics import present_replica, replica_history
from tests.console.test_ingest import Turns
from tests.job_fixtures import Spool

pytestmark = pytest.mark.django_db


@pytest.fixture
def replica(server):
    made = Deployment.objects.create(name="tiny")
    first = Revision.objects.create(deployment=made, n=1)
    Deployment.objects.update(revision=first)
    return Replica.objects.create(deployment=made, revision=first, n=1, server=server, state="starting", path="/m")


@pytest.fixture
def piece(replica):
    return Spool(f"e{replica.pk}-1")


def store(server, *entries):
    return ingest.store({server.pk: list(entries)})


def test_a_piece_gets_its_row_with_its_first_chunk(server, replica, piece):
    done = store(server, piece.chunk(("o", "INFO loading"), ("o", "INFO ready")))
    log = EngineLog.objects.get()
    assert (log.pk, log.replica, log.n, log.next_line, log.next_byte) == (f"e{replica.pk}-1", replica, 1, 3, piece.byte)
    assert done.acked == {(server.pk, log.pk): [3, piece.byte, False]} and done.lines == 2
    assert [line.split(b"\t")[2] for line in logs.after(log, 0).text.encode().split(b"\n")] == [
        b"INFO loading",
        b"INFO ready",
    ]


def test_a_chunk_sent_twice_is_stored_once_and_one_that_leaves_a_hole_not_at_all(server, piece):
    first, second, third = (piece.chunk(("o", str(n))) for n in range(3))
    store(server, first, first)
    assert store(server, third).acked == {(server.pk, piece.attempt_id): [2, int(second[1][b"b0"]), False]}
    store(server, second, third)
    assert list(EngineChunk.objects.values_list("first", "n")) == [(1, 1), (2, 1), (3, 1)]


def test_nothing_follows_the_end_of_a_piece(server, piece):
    store(server, piece.event(e="ended", state="failed", exit=137, reason=["被杀死", "killed"], more=True))
    store(server, piece.chunk(("o", "more")))
    log = EngineLog.objects.get()
    assert (log.done, log.exit_code, log.reason, log.next_line) == (True, 137, ["被杀死", "killed"], 2)


def test_a_server_cannot_write_for_a_replica_that_runs_elsewhere(replica, piece):
    other = Server.objects.create(name="kp-02")
    entry = piece.event(e="engine", state="ready")
    done = store(other, entry)
    replica.refresh_from_db()
    assert not EngineLog.objects.exists() and replica.state == "starting"
    assert done.acked == {(other.pk, piece.attempt_id): [2, piece.byte, False]}, "it is to forget it"


@pytest.mark.parametrize("name", ["e999999-1", "e1-0", "e0-1", "e1-1-s3", "e-1-1"])
def test_what_names_no_replica_is_forgotten(server, replica, name):
    spool = Spool(name)
    done = store(server, spool.event(e="ended", state="failed"))
    assert done.acked == {(server.pk, name): [2, spool.byte, True]} and not EngineLog.objects.exists()


def test_each_server_of_a_replica_has_pieces_of_its_own(server, replica, piece):
    other = Server.objects.create(name="kp-02")
    Replica.objects.update(nodes=[{"server": server.pk, "rank": 0}, {"server": other.pk, "rank": 1}])
    store(server, piece.chunk(("o", "head")))
    done = store(other, Spool(piece.attempt_id).event(e="engine", state="ready"))
    replica.refresh_from_db()
    assert list(done.acked) == [(other.pk, piece.attempt_id)] and replica.state == "starting"
    assert set(EngineLog.objects.values_list("pk", "server")) == {
        (piece.attempt_id, server.pk), (f"{piece.attempt_id}-s{other.pk}", other.pk),
    }  # fmt: skip


@pytest.mark.parametrize(("more", "state"), [(True, "ready"), (False, "failed")])
def test_where_another_server_gives_its_part_up_the_replica_has_failed(server, replica, piece, more, state):
    other = Server.objects.create(name="kp-02")
    nodes = [{"server": one.pk, "name": one.name, "rank": rank} for rank, one in enumerate((server, other))]
    Replica.objects.update(nodes=nodes, state="ready")
    ended = Spool(piece.attempt_id).event(e="ended", state="failed", exit=1, reason=["卡丢失", "lost"], more=more)
    done = store(other, ended)
    replica.refresh_from_db()
    assert replica.state == state and bool(done.replicas) is (not more)
    assert more or replica.reason == ["节点 kp-02：卡丢失", "Node kp-02: lost"]


def test_lines_of_jobs_and_engines_are_stored_in_one_go(server, attempt, spool, piece):
    store(server, spool.chunk(("o", "of a job")), piece.chunk(("o", "of an engine")))
    assert EngineChunk.objects.count() == 1 and attempt.chunks.count() == 1
    server.refresh_from_db()
    assert server.logs_cursor == "1-0"


# ---------- what events do to the replica ----------


def test_why_it_is_started_anew_stays_while_it_loads(server, replica, piece):
    why = ["上次退出", "It ended and is being started again: out of memory"]
    store(server, piece.event(e="engine", state="ready"))
    store(server, piece.event(e="engine", state="loading", reason=why))
    store(server, piece.event(e="started", pid=8, argv=["python"]))
    replica.refresh_from_db()
    assert (replica.state, replica.reason, replica.engine["pid"]) == ("loading", why, 8)
    store(server, piece.event(e="engine", state="ready"))
    replica.refresh_from_db()
    assert (replica.state, replica.reason) == ("ready", None)


def test_events_lead_the_replica_from_loading_to_ready_and_back(server, replica, piece):
    store(server, piece.event(e="started", pid=7, argv=["python"]))
    what = {"what": ["加载权重", "loading weights"], "done": 3, "of": 8}
    store(server, piece.event(e="engine", state="loading", progress=what))
    replica.refresh_from_db()
    assert (replica.state, replica.progress["done"], replica.engine["pid"]) == ("loading", 3, 7)
    done = store(server, piece.event(e="engine", state="ready", facts={"kv_tokens": 4096, "odd": 1}))
    replica.refresh_from_db()
    assert (replica.state, replica.progress, replica.engine["facts"]) == ("ready", None, {"kv_tokens": 4096})
    assert replica.ready_at and done.replicas == {replica.pk: replica.deployment_id}
    store(server, piece.event(e="engine", state="degraded", reason=["探测失败", "probes failed"]))
    replica.refresh_from_db()
    assert (replica.state, replica.reason[1]) == ("degraded", "probes failed")


@pytest.mark.parametrize(
    "event",
    [
        {"e": "engine", "state": "excellent"}, {"e": "engine", "state": ["ready"]}, {"e": "engine"},
        {"e": "engine", "state": "starting", "progress": 7, "reason": {"a": 1}, "facts": [1]},
        {"e": "started", "pid": -1}, {"e": "ended", "exit": 2**40, "reason": "x"}, {"e": "ended", "exit": True},
    ],
)  # fmt: skip
def test_odd_events_break_nothing(server, replica, piece, event):
    store(server, piece.event(**event))
    log = EngineLog.objects.get()
    replica.refresh_from_db()
    assert log.next_line == 2 and log.exit_code is None and replica.state in ("starting", "loading")


def test_a_replica_that_is_gone_stays_gone(server, replica, piece):
    Replica.objects.update(state="stopped")
    done = store(server, piece.event(e="engine", state="ready"))
    replica.refresh_from_db()
    assert replica.state == "stopped" and done.replicas == {}


# ---------- pages ----------


def test_a_page_that_joins_gets_the_newest_piece_and_the_lines_it_lacks(server, replica, piece):
    import re

    store(server, piece.chunk(*[("o", f"line {n}") for n in range(20)]))
    match = re.fullmatch(r"replica:(?P<id>\d+)", f"replica:{replica.pk}")
    present = present_replica(match)
    assert present.attempt == piece.attempt_id and present.messages[0].data["state"] == "starting"
    (told,) = replica_history(match, piece.attempt_id, 15)
    assert (told.type, told.seq, told.data["first"], told.data["n"]) == ("log", 20, 16, 5)
    assert replica_history(match, piece.attempt_id, 20) == []


def test_lines_are_published_as_those_of_jobs_are(valkey, server, replica, piece):
    redis, turns = valkey.client(), Turns(valkey.url)
    listener = redis.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(streams.live(f"replica:{replica.pk}"))
    listener.get_message(timeout=1)
    redis.xadd(streams.logs(server.pk), piece.chunk(("o", "hello"))[1])
    redis.xadd(streams.logs(server.pk), piece.event(e="engine", state="ready")[1])
    turns.turn()
    got = [json.loads(m["data"]) for m in iter(lambda: listener.get_message(timeout=0.3), None)]
    assert [(m["type"], m["seq"]) for m in got[:3]] == [("log", 1), ("log", 2), ("state", 0)]
    assert got[0]["data"]["attempt"] == piece.attempt_id and got[0]["data"]["text"].endswith("\to\thello")
    assert got[2]["data"]["state"] == "ready"
    assert json.loads(redis.hget(streams.acked(server.pk), piece.attempt_id)) == [3, piece.byte, False]


def test_the_viewers_lines_and_the_whole_as_text(server, replica, piece):
    store(server, piece.chunk(("o", "one"), ("e", "two"), ("o", "three")))
    log = engine_logs.find(replica)
    assert engine_logs.lines(log, 1, None, 1)["text"].endswith("\te\ttwo")
    assert engine_logs.lines(log, None, None, 2)["first"] == 2
    text = b"".join(logs.whole(log)).decode()
    assert [line.split("\t")[1] for line in text.splitlines()] == ["one", "two", "three"]
    assert engine_logs.lines(None, None, None, 5)["total"] == 0


def test_old_pieces_go_and_the_one_that_is_written_stays(server, replica, monkeypatch):
    monkeypatch.setattr(engine_logs, "KEPT_PIECES", 2)
    for n in range(1, 6):
        EngineLog.objects.create(pk=f"e{replica.pk}-{n}", replica=replica, server=server, n=n, done=n != 1)
    assert engine_logs.prune() == 2
    assert list(EngineLog.objects.values_list("n", flat=True)) == [1, 4, 5], "piece 1 has not ended"


def test_pieces_of_one_server_push_out_none_of_another_and_the_answering_ones_come_first(server, replica, monkeypatch):
    monkeypatch.setattr(engine_logs, "KEPT_PIECES", 2)
    other = Server.objects.create(name="kp-02")
    for n in (1, 2, 1_000_001, 1_000_002, 1_000_003):
        EngineLog.objects.create(pk=f"p{n}", replica=replica, server=other if n > 9 else server, n=n, done=True)
    assert engine_logs.prune() == 1
    assert [one.n for one in engine_logs.pieces(replica)] == [2, 1, 1_000_003, 1_000_002]
    assert engine_logs.newest(replica).n == 2


def test_a_piece_that_ended_long_ago_goes_though_the_replica_runs(server, replica, settings):
    settings.ENGINE_LOG_DAYS = 3
    for n, days in ((1, 4), (2, 2)):
        ended = timezone.now() - timedelta(days=days)
        EngineLog.objects.create(pk=f"p{n}", replica=replica, server=server, n=n, done=True, ended_at=ended)
    EngineLog.objects.create(pk="p3", replica=replica, server=server, n=3, started_at=timezone.now())
    assert engine_logs.prune() == 1 and engine_logs.prune() == 0
    assert [one.n for one in engine_logs.pieces(replica)] == [3, 2]


def test_thousands_of_events_write_the_replica_once_and_ask_once(
    server, replica, piece, valkey, django_capture_on_commit_callbacks, django_assert_max_num_queries
):
    """A hostile server fills a chunk with changes: neither the others nor the console's queue pay for it."""
    states = [{"e": "engine", "state": ("ready", "degraded")[n % 2], "reason": ["x", "x"]} for n in range(1000)]
    chunk = piece.chunk(*[("v", json.dumps(event)) for event in states])
    with django_capture_on_commit_callbacks(execute=True) as asked, django_assert_max_num_queries(20):
        store(server, chunk)
    replica.refresh_from_db()
    assert replica.state == "degraded" and len(asked) <= 4  # two questions, each of which queues one job
    queued = len(django_rq.get_queue("default"))
    for n in range(2, 12):
        with django_capture_on_commit_callbacks(execute=True):
            store(server, Spool(f"e{replica.pk}-{n}").event(e="ended", state="failed"))
    assert len(django_rq.get_queue("default")) <= queued + 1
    assert remedy_asking.take(f"e{replica.pk}") == (f"e{replica.pk}-11", True)
    assert remedy_asking.take(f"e{replica.pk}") is None
