"""Lines from spool to console over a real Redis that is killed, filled, restarted: each once, in order, none lost."""

import json
import os
import signal
import time
import zlib

import pytest
import redis

from deployments.agent import shipper as shippers
from deployments.agent import spool
from deployments.agent.link import Link
from deployments.agent.shipper import WINDOW, Shipper
from tests.deployments.agent_bench import AgentServer, SmallIngest
from tests.waiting import until


@pytest.fixture
def server(tmp_path, valkey):
    made = AgentServer(tmp_path, valkey.url)
    made.client = valkey.client()
    yield made
    made.close()


def numbers(ingest, attempt):
    return [int(text) for text in ingest.texts(attempt)]


def write_lines(folder, start, count, *, end=False):
    with (folder / "lines").open("ab") as file:
        file.write(b"".join(spool.record("o", f"{n} {'x' * 200}") for n in range(start, start + count)))
        if end:
            file.write(spool.record("v", spool.event("ended", state="succeeded", exit=0, reason=None)))


def numbered(ingest, attempt):
    return [int(text.split()[0]) for text in ingest.texts(attempt)]


def test_lines_of_many_jobs_arrive_whole_and_in_order(server):
    server.start("link")
    ingest = SmallIngest(server.client)
    folders = [server.run("for n in range(20000): print(n)", wait=False) for _ in range(3)]
    until(lambda: (ingest.poll(), len(ingest.done) == 3)[1], timeout=30)
    for folder in folders:
        assert numbers(ingest, folder.name) == list(range(20000))
    until(lambda: all((folder / "shipped").exists() for folder in folders))
    assert [path.name for path in folders[0].iterdir() if path.name not in ("spec.json", "shipped")] == []
    assert ingest.duplicates == 0


def test_the_first_line_of_a_job_leaves_at_once(server):
    server.start("link")
    until(lambda: server.client.pubsub_numpat() == 0)
    ingest = SmallIngest(server.client)
    took = []
    for _ in range(5):
        time.sleep(0.3)
        folder = server.claim("print(1)")
        began = time.monotonic()
        (folder / "lines").write_bytes(spool.record("o", "first"))
        until(lambda folder=folder: (ingest.poll(), ingest.texts(folder.name))[1], every=0.002)
        took.append(time.monotonic() - began)
    assert sorted(took)[2] < 0.1, took


def test_a_link_killed_over_and_over_sends_each_line_once(server):
    link = server.start("link")
    ingest = SmallIngest(server.client)
    folder = server.run("import time\nfor n in range(3000):\n  print(n, flush=True)\n  time.sleep(.001)", wait=False)
    while folder.name not in ingest.done:
        until(lambda: ingest.poll() or folder.name in ingest.done, timeout=20)
        os.kill(link.pid, signal.SIGKILL)
        link.wait()
        link = server.start("link")
        for _ in range(20):
            ingest.poll()
            time.sleep(0.02)
    assert numbers(ingest, folder.name) == list(range(3000))


def test_redis_killed_while_a_job_prints_loses_and_doubles_nothing(tmp_path, own_valkey):
    server = AgentServer(tmp_path, own_valkey.url)
    try:
        server.start("link")
        ingest = SmallIngest(own_valkey.client())
        folder = server.run("import time\nfor n in range(400):\n  print(n, flush=True)\n  time.sleep(.01)", wait=False)
        until(lambda: (ingest.poll(), len(ingest.texts(folder.name)) > 50)[1])
        own_valkey.kill()
        time.sleep(3)
        assert spool.is_alive(folder)
        own_valkey.start()
        ingest.redis = own_valkey.client()
        until(lambda: (ingest.poll(), folder.name in ingest.done)[1], timeout=20)
        assert numbers(ingest, folder.name) == list(range(400))
    finally:
        server.close()


def test_redis_that_comes_back_empty_gets_the_lines_again(server):
    folder = server.claim("print(1)")
    shipper = Shipper(server.client, "h:7", server.config.attempts)
    ingest = SmallIngest(server.client)
    write_lines(folder, 0, 2000)
    shipper.tick(), shipper.tick()
    server.client.flushall()
    write_lines(folder, 2000, 10, end=True)
    until(lambda: (shipper.tick(), ingest.poll(), folder.name in ingest.done)[2])
    assert numbered(ingest, folder.name) == list(range(2010))


@pytest.mark.parametrize("lost", [0, 3, 15])
def test_a_chunk_that_is_lost_is_sent_again(server, lost):
    folder = server.claim("print(1)")
    shipper = Shipper(server.client, "h:7", server.config.attempts)
    ingest = SmallIngest(server.client)
    write_lines(folder, 0, 6000, end=True)
    shipper.tick(), shipper.tick()
    entries = server.client.xrange("h:7:logs")
    assert len(entries) == WINDOW
    server.client.xdel("h:7:logs", entries[lost][0])
    until(lambda: (shipper.tick(), ingest.poll(), folder.name in ingest.done)[2])
    assert numbered(ingest, folder.name) == list(range(6000))


def test_a_console_that_is_away_does_not_fill_redis(server, monkeypatch):
    """The window bounds what waits; what stands in the stream is repeated by single chunks, ever more seldom."""
    now = [1000.0]
    monkeypatch.setattr(shippers.time, "monotonic", lambda: now[0])
    folder = server.claim("print(1)")
    shipper = Shipper(server.client, "h:7", server.config.attempts)
    write_lines(folder, 0, 10000, end=True)
    for _ in range(3600 * 2):
        shipper.tick()
        now[0] += 0.5
    assert WINDOW < server.client.xlen("h:7:logs") < WINDOW + 75
    ingest = SmallIngest(server.client)
    for _ in range(2000):
        shipper.tick()
        ingest.poll()
        now[0] += 0.05
    assert numbered(ingest, folder.name) == list(range(10000))


def test_a_console_restored_from_an_older_backup_gets_the_lines_again(server):
    folder = server.claim("print(1)")
    shipper = Shipper(server.client, "h:7", server.config.attempts)
    ingest = SmallIngest(server.client)
    write_lines(folder, 0, 3000)
    until(lambda: (shipper.tick(), ingest.poll(), len(ingest.texts(folder.name)) == 3000)[2])
    older = SmallIngest(server.client)
    server.client.hset("h:7:acked", folder.name, json.dumps([1, 0, False]))
    write_lines(folder, 3000, 10, end=True)
    until(lambda: (shipper.tick(), older.poll(), folder.name in older.done)[2])
    assert numbered(older, folder.name) == list(range(3010))


def test_an_attempt_that_the_console_does_not_know_is_let_go(server):
    folder = server.claim("print(1)")
    shipper = Shipper(server.client, "h:7", server.config.attempts)
    write_lines(folder, 0, 10, end=True)
    server.client.hset("h:7:acked", folder.name, json.dumps([12, 10**6, True]))
    shipper.tick()
    assert (folder / "shipped").exists()


def test_chunks_are_as_the_console_reads_them(server):
    folder = server.claim("print(1)")
    shipper = Shipper(server.client, "h:7", server.config.attempts)
    write_lines(folder, 0, 500)
    shipper.tick(), shipper.tick()
    next_line, next_byte = 1, 0
    for _, fields in server.client.xrange("h:7:logs"):
        assert set(fields) == {b"a", b"f", b"n", b"b0", b"b1", b"z"}
        raw = zlib.decompress(fields[b"z"])
        assert len(raw) <= 64 * 1024
        assert (int(fields[b"f"]), int(fields[b"b0"])) == (next_line, next_byte)
        next_line, next_byte = next_line + int(fields[b"n"]), int(fields[b"b1"])
    assert next_line == 501


def test_a_full_redis_refuses_lines_but_hears_the_beat(tmp_path, own_valkey):
    server = AgentServer(tmp_path, own_valkey.url)
    client = own_valkey.client()
    link = Link(server.config, redis.Redis.from_url(own_valkey.url))
    folder = server.claim("print(1)")
    write_lines(folder, 0, 100)
    link.tick()
    client.config_set("maxmemory", "1")
    pubsub = client.pubsub()
    pubsub.psubscribe("h:*:beat")
    pubsub.get_message(timeout=1)
    write_lines(folder, 100, 100, end=True)
    link.beat_at = 0
    link.tick()
    assert json.loads(until(lambda: pubsub.get_message(timeout=0.1))["data"])["seq"] == 2
    assert link.back_offs["lines"].pause > 0
    client.config_set("maxmemory", "0")
    ingest = SmallIngest(client)
    until(lambda: (link.tick(), ingest.poll(), folder.name in ingest.done)[2])
    assert numbered(ingest, folder.name) == list(range(200))


def test_samples_wait_for_redis_and_keep_their_order(tmp_path, own_valkey):
    from deployments.agent.outbox import Outbox, waiting

    server = AgentServer(tmp_path, own_valkey.url)
    outbox = Outbox(server.config.telemetry)
    link = Link(server.config, redis.Redis.from_url(own_valkey.url, retry=None))
    own_valkey.kill()
    for n in range(150):
        outbox.put({"type": "sample", "seq": n})
    link.tick()
    assert len(waiting(server.config.telemetry)) == 120
    own_valkey.start()
    until(lambda: (link.tick(), not waiting(server.config.telemetry))[1])
    entries = own_valkey.client().xrange("h:7:telemetry")
    assert [json.loads(fields[b"d"])["seq"] for _, fields in entries] == list(range(30, 150))


def test_everything_is_killed_in_turn_and_the_log_is_whole(tmp_path, own_valkey):
    """Worker, link and Redis die by SIGKILL while five jobs print; the runners are left alone."""
    server = AgentServer(tmp_path, own_valkey.url)
    try:
        worker, link = server.start("worker"), server.start("link")
        ingest = SmallIngest(own_valkey.client())
        program = "import time\nfor n in range(600):\n  print(n, flush=True)\n  time.sleep(.01)"
        bodies = [server.payload(program) for _ in range(5)]
        for body in bodies:
            server.enqueue(own_valkey.client(), body)
        names = [json.loads(body)["attempt"] for body in bodies]
        until(lambda: (ingest.poll(), len(ingest.lines) == 5)[1])
        for turn in range(6):
            victim = turn % 3
            if victim == 0:
                worker.kill(), worker.wait()
                worker = server.start("worker")
            elif victim == 1:
                link.kill(), link.wait()
                link = server.start("link")
            else:
                own_valkey.restart()
                ingest.redis = own_valkey.client()
            for _ in range(25):
                ingest.poll()
                time.sleep(0.02)
        until(lambda: (ingest.poll(), len(ingest.done) == 5)[1], timeout=30)
        for name in names:
            assert numbers(ingest, name) == list(range(600))
    finally:
        server.close()
