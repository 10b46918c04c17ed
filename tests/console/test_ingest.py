"""The ingest process, turn by turn, on a real Valkey."""

import json
import time

import pytest

from console import streams
from console.ingest import Ingest
from deployments import ingest as jobs_ingest
from deployments.models import Attempt, Job, LogChunk, Server
from tests.monitoring.test_ingest import sample

pytestmark = pytest.mark.django_db


class Turns:
    """An Ingest whose clock the test moves."""

    def __init__(self, url):
        self.ingest = Ingest(url)
        self.ingest.beats.psubscribe(streams.BEATS)
        self.clock = time.monotonic()
        self.ingest.telemetry.monotonic = lambda: self.clock
        self.ingest._reading_since = self.clock

    def turn(self, after_s=0.05):
        self.clock += after_s
        assert self.ingest.holds_lease(self.clock)
        self.ingest.tick(time.time(), self.clock)


@pytest.fixture
def turns(valkey):
    return Turns(valkey.url)


def send(redis, server, entry):
    redis.xadd(streams.logs(server.pk), entry[1])


def test_stored_lines_are_trimmed_acknowledged_and_published(turns, valkey, server, attempt, spool):
    redis = valkey.client()
    listener = redis.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(streams.live(f"job:{attempt.job_id}"))
    listener.get_message(timeout=1)
    send(redis, server, spool.event(e="started"))
    send(redis, server, spool.chunk(("o", "hello")))
    turns.turn()
    assert LogChunk.objects.count() == 2
    assert redis.xlen(streams.logs(server.pk)) == 0
    assert json.loads(redis.hget(streams.acked(server.pk), attempt.pk)) == [3, spool.byte, False]
    got = [json.loads(m["data"]) for m in iter(lambda: listener.get_message(timeout=0.5), None)]
    assert [(m["type"], m["seq"]) for m in got[:2]] == [("log", 1), ("log", 2)]
    assert got[1]["data"]["text"].endswith("\to\thello") and got[2]["data"]["state"] == "running"


def test_what_is_published_is_already_stored_trimmed_and_acknowledged(
    turns, valkey, server, attempt, spool, monkeypatch
):
    """A reader of the message may ask at once for the rows, and the server may forget at once."""
    seen = []
    publish = turns.ingest._publish

    def look(messages):
        messages = list(messages)
        if any(b'"log"' in data for _, data in messages):
            redis = valkey.client()
            seen.append(
                (
                    LogChunk.objects.count(),
                    redis.xlen(streams.logs(server.pk)),
                    redis.hexists(streams.acked(server.pk), attempt.pk),
                )
            )
        publish(messages)

    monkeypatch.setattr(turns.ingest, "_publish", look)
    send(valkey.client(), server, spool.chunk(("o", "x")))
    turns.turn()
    assert seen == [(1, 0, True)]


def test_a_restart_goes_on_where_the_rows_end(valkey, server, attempt, spool):
    redis = valkey.client()
    send(redis, server, spool.chunk(("o", "one")))
    Turns(valkey.url).turn()
    valkey.client().delete(streams.INGEST_LEASE)
    send(redis, server, spool.chunk(("o", "two")))
    Turns(valkey.url).turn()
    assert Attempt.objects.get().next_line == 3


def test_two_ingests_store_each_line_once(valkey, server, attempt, spool):
    """The lease failed and both read the same entries: the transaction is the fence."""
    first, second = Turns(valkey.url), Turns(valkey.url)
    send(valkey.client(), server, spool.chunk(("o", "one")))
    for turns in (first, second):
        turns.ingest._load_servers()
    keys = {streams.logs(server.pk): "0"}
    both = [turns.ingest._read(keys, 10) for turns in (first, second)]
    for turns, answer in zip((first, second), both, strict=True):
        turns.ingest._read = lambda cursors, count, answer=answer: answer
        turns.ingest._read_logs()
    assert LogChunk.objects.count() == 1


def test_one_leads_and_the_other_takes_over(valkey):
    first, second = Ingest(valkey.url), Ingest(valkey.url)
    assert first.holds_lease(0.0) and not second.holds_lease(0.0)
    first._release()
    assert second.holds_lease(100.0) and not first.holds_lease(100.0)


def test_a_full_redis_still_stores_and_trims(own_valkey, server, attempt, spool):
    redis = own_valkey.client()
    turns = Turns(own_valkey.url)
    turns.turn()
    send(redis, server, spool.chunk(("o", "while full")))
    redis.config_set("maxmemory", "1mb")
    redis.config_set("maxmemory-policy", "noeviction")
    turns.turn()
    assert Attempt.objects.get().next_line == 2 and redis.xlen(streams.logs(server.pk)) == 0
    assert not redis.exists(streams.acked(server.pk))
    redis.config_set("maxmemory", "0")
    send(redis, server, (None, dict(spool_again(attempt))))
    turns.turn()
    assert json.loads(redis.hget(streams.acked(server.pk), attempt.pk))[0] == 2  # sent again, answered with its place


def spool_again(attempt):
    from tests.job_fixtures import Spool

    return Spool(attempt.pk).chunk(("o", "while full"))[1]


def test_beats_and_samples_make_a_server_live(turns, valkey, server):
    Server.objects.update(last_seen_at=None)
    redis = valkey.client()
    turns.turn()
    redis.publish(streams.beat(server.pk), json.dumps({"t": time.time(), "active": []}))
    redis.xadd(streams.telemetry(server.pk), {"d": sample()})
    time.sleep(0.05)
    turns.turn()
    turns.turn(after_s=6)
    server.refresh_from_db()
    assert not server.is_offline and server.npus.count() == 1
    assert json.loads(redis.hget(streams.FLEET_NOW, str(server.pk)))["npus"][0]["aicore"] == 40
    assert json.loads(redis.get(streams.INGEST_ALIVE))["lag_ms"] < 5000


def test_a_server_that_comes_back_takes_jobs_within_a_second(turns, valkey, server):
    Server.objects.update(last_seen_at=None)
    turns.turn()
    valkey.client().publish(streams.beat(server.pk), json.dumps({"active": []}))
    time.sleep(0.05)
    turns.turn(after_s=1.1)
    server.refresh_from_db()
    assert not server.is_offline


def test_silence_loses_a_job_but_not_while_we_were_away(turns, valkey, server, attempt):
    Job.objects.update(state="running")
    turns.turn()
    turns.turn(after_s=6)
    assert Job.objects.get().state == "running"  # we listen for 6 s only: that is no silence of the server's
    turns.turn(after_s=61)
    assert Job.objects.get().state == "lost"
    valkey.client().publish(streams.beat(server.pk), json.dumps({"active": [attempt.pk]}))
    time.sleep(0.05)
    turns.turn(after_s=6)
    turns.turn(after_s=6)
    assert Job.objects.get().state == "running"


def test_what_servers_write_never_stops_the_turn(turns, valkey, server, attempt):
    redis = valkey.client()
    turns.turn()
    for entry in (
        {"d": "{"},
        {"x": "y"},
        {"d": b"\xff" * 100},
        {"d": json.dumps({"type": "sample", "npus": "all", "t": "now"})},
    ):
        redis.xadd(streams.telemetry(server.pk), entry)
        redis.xadd(streams.logs(server.pk), entry)
    for data in ("{", "[]", json.dumps({"active": {"a": 1}}), json.dumps({"active": [[]] * 9})):
        redis.publish(streams.beat(server.pk), data)
    redis.publish("h:x:beat", "1")
    time.sleep(0.05)
    turns.turn()
    turns.turn(after_s=6)
    assert redis.xlen(streams.logs(server.pk)) == 0


@pytest.mark.parametrize("stream", [streams.logs, streams.telemetry])
@pytest.mark.parametrize("place", ["18446744073709551615-18446744073709551615", "5-18446744073709551615"])
def test_an_entry_at_the_end_of_all_places_stops_nobody(turns, valkey, server, attempt, spool, stream, place):
    """No place comes after it to trim to, and the longest fits into no column."""
    other = Server.objects.create(name="kp-02")
    redis = valkey.client()
    redis.xadd(stream(other.pk), {"d": "{}"}, id=place)
    send(redis, server, spool.chunk(("o", "hello")))
    turns.turn()
    assert LogChunk.objects.count() == 1 and redis.hexists(streams.acked(server.pk), attempt.pk)
    assert not redis.exists(stream(other.pk)), "else its own agent could write nothing any more"
    assert turns.ingest.quota.reported.get_nowait()[0] == other.pk
    turns.turn()
    other.refresh_from_db()
    assert (other.logs_cursor, other.telemetry_cursor) == ("0", "0")


def test_a_new_ingest_tells_the_last_line_that_its_predecessor_stored_but_did_not_publish(
    valkey, server, attempt, spool
):
    redis = valkey.client()
    listener = redis.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(streams.live(f"job:{attempt.job_id}"))
    listener.get_message(timeout=1)
    before = Turns(valkey.url)
    before.ingest._publish = lambda messages: None  # it dies here
    send(redis, server, spool.event(e="started"))
    before.turn()
    before.ingest._release()
    after = Turns(valkey.url)
    after.ingest.heads.seed()
    after.turn()
    told = [json.loads(m["data"]) for m in iter(lambda: listener.get_message(timeout=0.5), None)]
    assert {"seq": 1, "type": "head", "data": {"attempt": attempt.pk}} in told


def test_an_entry_that_cannot_be_stored_harms_only_its_own(turns, valkey, server, attempt, spool, monkeypatch):
    other = Server.objects.create(name="kp-66")
    store = jobs_ingest.store

    def breaks(batch):
        if any(fields == {b"poison": b"1"} for entries in batch.values() for _, fields in entries):
            raise ValueError("nobody thought of this")
        return store(batch)

    monkeypatch.setattr(jobs_ingest, "store", breaks)
    redis = valkey.client()
    redis.xadd(streams.logs(other.pk), {"poison": "1"})
    send(redis, server, spool.chunk(("o", "one")))
    turns.turn()
    assert LogChunk.objects.count() == 1
    assert redis.xlen(streams.logs(other.pk)) == 0


def test_many_entries_are_stored_in_portions(turns, valkey, server, attempt, spool, monkeypatch):
    monkeypatch.setattr("console.ingest.ENTRIES_A_STORE", 3)
    sizes = []
    store = jobs_ingest.store
    monkeypatch.setattr(jobs_ingest, "store", lambda batch: sizes.append(len(batch[server.pk])) or store(batch))
    for n in range(8):
        send(valkey.client(), server, spool.chunk(("o", f"line {n}")))
    turns.turn()
    assert sizes == [3, 3, 2] and Attempt.objects.get().next_line == 9


@pytest.mark.parametrize(
    "beat", [b"\xff", b"null", b"[]", b'{"active": {"a": 1}}', b'{"active": [[], {}, "\\ud800"]}', b"x" * 200_000]
)
def test_a_beat_of_any_shape_is_a_beat(turns, valkey, server, beat):
    turns.turn()
    valkey.client().publish(streams.beat(server.pk), beat)
    time.sleep(0.05)
    turns.turn(6)
    assert turns.ingest.telemetry.last_heard[server.pk] == turns.clock


def test_a_stream_that_begins_anew_behind_the_old_place_is_read(valkey, server, attempt, spool):
    """Redis came back empty, with a clock that is behind."""
    Server.objects.update(logs_cursor="9000000000000-0")
    ingest = Ingest(valkey.url)
    ingest._load_servers()
    ingest.telemetry_cursors[server.pk] = "9000000000000-5"
    ingest._mend_cursors()
    assert (ingest.log_cursors, ingest.telemetry_cursors) == ({server.pk: "0"}, {server.pk: "0"})
    ingest.log_cursors[server.pk] = "9000000000000-0"
    send(valkey.client(), server, spool.chunk(("o", "hello")))
    ingest._mend_cursors()
    ingest._read_logs()
    assert LogChunk.objects.count() == 1
    place = ingest.log_cursors[server.pk]
    ingest._mend_cursors()
    assert ingest.log_cursors[server.pk] == place != "0"


def test_servers_whose_users_redis_forgot_have_their_rights_again(valkey, server):
    ingest, redis = Ingest(valkey.url), valkey.client()
    other = Server.objects.create(name="kp-02")
    redis.execute_command("ACL", "SETUSER", streams.user(other.pk), "off")
    ingest._give_rights_back()
    assert redis.acl_getuser(streams.user(server.pk))["flags"][0] == "on"
    assert "off" in redis.acl_getuser(streams.user(other.pk))["flags"], "who was switched off stays so"
    redis.acl_deluser(streams.user(server.pk), streams.user(other.pk))


def test_what_a_busy_database_refused_is_written_later(turns, valkey, server, monkeypatch):
    from django.db import OperationalError

    from monitoring.ingest import Telemetry

    turns.turn()
    valkey.client().publish(streams.beat(server.pk), "{}")
    turns.turn(0.1)
    with monkeypatch.context() as busy:
        busy.setattr(Telemetry, "_write", lambda *_: (_ for _ in ()).throw(OperationalError("locked")))
        with pytest.raises(OperationalError):
            turns.ingest.telemetry.flush()
    before = Server.objects.get().last_seen_at
    turns.ingest.telemetry.flush()
    assert Server.objects.get().last_seen_at > before


def test_redis_never_ends_our_connections_for_what_they_hold(own_valkey):
    ingest = Ingest(own_valkey.url)
    ingest.beats.psubscribe("h:*:beat")
    ingest.beats.get_message(timeout=1)
    ingest.redis.ping()
    ours = [row for row in own_valkey.client().client_list() if "e" in row["flags"]]
    assert len(ours) == 2
