"""A burst of lines while everything around ingest breaks: Redis, ingest itself, the disk, a viewer that reads nothing.

The agent is `Sender`: it sends again what nobody acknowledged, as the shipper does.
"""

import json
import tracemalloc

import pytest
import redis
from django.db import DatabaseError, connection

from console import streams
from console.message import made
from console.outbox import LINES_BYTES, Numbered
from deployments.models import Attempt, Job, LogChunk, Server
from tests.console.test_ingest import Turns
from tests.job_fixtures import Spool

CHUNKS, LINES = 60, 200


class Sender:
    """One log of CHUNKS chunks. `send` writes those that nobody acknowledged."""

    def __init__(self, server, attempt):
        spool = Spool(attempt.pk)
        self.server, self.attempt, self.total = server, attempt, CHUNKS * LINES
        self.chunks = [spool.chunk(*[("o", f"line {n * LINES + k}") for k in range(LINES)])[1] for n in range(CHUNKS)]

    def send(self, client, count=CHUNKS):
        said = client.hget(streams.acked(self.server.pk), self.attempt.pk)
        following = json.loads(said)[0] if said else 1
        pipeline = client.pipeline(transaction=False)
        for chunk in [chunk for chunk in self.chunks if int(chunk[b"f"]) >= following][:count]:
            pipeline.xadd(streams.logs(self.server.pk), chunk)
        pipeline.execute()

    def check_all_stored_once(self, client):
        found = list(LogChunk.objects.order_by("first").values_list("first", "n"))
        assert found == [(1 + n * LINES, LINES) for n in range(CHUNKS)]
        assert Attempt.objects.get().next_line == self.total + 1
        assert json.loads(client.hget(streams.acked(self.server.pk), self.attempt.pk))[0] == self.total + 1
        assert client.xlen(streams.logs(self.server.pk)) == 0


class Killed(BaseException):
    """SIGKILL: nothing of ingest catches it."""


@pytest.fixture
def sender(server, attempt):
    return Sender(server, attempt)


@pytest.mark.django_db
@pytest.mark.parametrize("forgets", [False, True])
def test_a_redis_that_is_restarted_in_the_burst_loses_no_line(own_valkey, sender, monkeypatch, forgets):
    monkeypatch.setattr("console.ingest.LOGS_A_READ", 20)
    client, turns = own_valkey.client(), Turns(own_valkey.url)
    sender.send(client)
    turns.turn()
    assert 0 < LogChunk.objects.count() < CHUNKS
    own_valkey.kill()
    with pytest.raises(redis.RedisError):
        turns.turn()
    own_valkey.start()
    if forgets:
        client.flushall()
    again = Turns(own_valkey.url)
    client.delete(streams.INGEST_LEASE)
    again.ingest._load_servers()
    again.ingest._mend_cursors()
    sender.send(client)
    for _ in range(8):
        again.turn()
    sender.check_all_stored_once(client)


@pytest.mark.django_db
@pytest.mark.parametrize("deed", ["xtrim", "hset", "publish"])
def test_an_ingest_killed_between_store_and_acknowledge_loses_and_doubles_no_line(
    own_valkey, sender, monkeypatch, deed
):
    client, turns = own_valkey.client(), Turns(own_valkey.url)
    turns.turn()
    sender.send(client, CHUNKS // 2)

    def die(*_arguments, **_more):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(f"redis.client.Pipeline.{deed}", die)
        turns.ingest._read_logs()
    assert LogChunk.objects.count() == CHUNKS // 2
    client.delete(streams.INGEST_LEASE)
    again = Turns(own_valkey.url)
    sender.send(client)
    for _ in range(4):
        again.turn()
    sender.check_all_stored_once(client)


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="the size of SQLite's file is limited here")
def test_a_full_disk_delays_the_log_and_loses_no_line(own_valkey, sender):
    client, turns = own_valkey.client(), Turns(own_valkey.url)
    turns.turn()
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA max_page_count")
        most = cursor.fetchone()[0]
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA page_count")
        cursor.execute(f"PRAGMA max_page_count={cursor.fetchone()[0]}")
        cursor.fetchall()
    sender.send(client)
    try:
        with pytest.raises(DatabaseError, match="full"):
            turns.turn()
        assert client.xlen(streams.logs(sender.server.pk)) == CHUNKS and not LogChunk.objects.exists()
        assert not client.exists(streams.acked(sender.server.pk)), "nothing is acknowledged that is not stored"
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA max_page_count={most}")
            cursor.fetchall()
    for _ in range(4):
        turns.turn()
    sender.check_all_stored_once(client)
    assert Server.objects.count() == Job.objects.count() == 1


async def test_a_viewer_that_reads_nothing_costs_the_same_however_much_is_written():
    async def read(_attempt, _after):
        raise AssertionError("nobody asks")

    outbox = Numbered("job:1", read, {})
    tracemalloc.start()
    try:
        for n in range(1, 2000):
            data = {"attempt": "a1-1-1", "first": n, "n": 1, "text": f"{n}\to\t" + "x" * 60_000}
            outbox.offer(made("job:1", "log", data, n))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outbox.size <= LINES_BYTES
    assert peak < 6 * LINES_BYTES
