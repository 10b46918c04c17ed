"""One server that fills Redis is switched off, whichever way it does it, while the others go on at full speed."""

import contextlib
import json
import socket
import subprocess
import sys
import time

import pytest
import redis
from auditlog.models import LogEntry
from django.utils import timezone

from console import streams
from console.errors import Conflict, NotAllowed, Unavailable
from console.ingest import Ingest
from console.models import Alert
from deployments.models import Server
from deployments.services import enrol, quota
from deployments.steps import Text
from tests.conftest import ROOT, Valkey
from tests.deployments.agent_bench import KEY, AgentServer, SmallIngest
from tests.waiting import until

MB = quota.MB
MAXMEMORY_MB = 256


@pytest.fixture
def small_redis(tmp_path, settings):
    """A Redis as the console makes it, of its usual size; settings.REDIS_URL points at it."""
    folder = tmp_path / "valkey"
    folder.mkdir()
    limits = f"maxmemory {MAXMEMORY_MB}mb\nmaxmemory-policy noeviction\nmaxmemory-clients 25%\n"
    made = Valkey(folder, config=limits + "client-query-buffer-limit 32mb\nproto-max-bulk-len 4mb")
    settings.REDIS_URL = made.url
    yield made
    made.kill()


@pytest.fixture
def two(small_redis, transactional_db):
    """Server 7 floods, server 8 works."""
    rows = [
        Server.objects.create(pk=pk, name=f"kp-0{pk}", key=KEY, redis_password=f"pw{pk}", last_seen_at=timezone.now())
        for pk in (7, 8)
    ]
    enrol.grant(small_redis.client())
    return rows


@pytest.fixture
def watch(small_redis, two):
    made = quota.Watch(small_redis.url)
    made.active = True
    made.start()
    yield made
    made.stopping.set()
    made.join(10)


class Flood:
    """Clients of server 7 that do one thing again and again until Redis lets them do it no more.

    In processes of their own, as servers are: they must not take the interpreter from the watch.
    """

    def __init__(self, valkey, kind, clients=3):
        self.clients = clients
        words = [sys.executable, "-m", "tests.deployments.floods", str(valkey.port), kind]
        self.processes = [subprocess.Popen([*words, str(n)], cwd=ROOT) for n in range(clients)]

    @property
    def ended(self):
        return sum(process.poll() is not None for process in self.processes)


@pytest.fixture
def flood(small_redis):
    made = []

    def start(kind):
        made.append(Flood(small_redis, kind))
        return made[-1]

    yield start
    for process in (process for one in made for process in one.processes):
        process.kill()
        process.wait()


@pytest.mark.parametrize("kind", ["lines", "many_keys", "huge_values", "one_growing_value"])
def test_who_fills_redis_is_switched_off_before_it_is_full(small_redis, two, watch, flood, kind):
    client = small_redis.client()
    peak, refused = 0, []
    other = redis.Redis(port=small_redis.port, username="h8", password="pw8")
    clients = flood(kind)

    def is_off():
        nonlocal peak
        peak = max(peak, client.info("memory")["used_memory"])
        try:
            other.xadd("h:8:telemetry", {"d": "{}"}, maxlen=10)
        except redis.RedisError as error:
            refused.append(error)
        return "off" in client.acl_getuser("h7")["flags"]

    until(is_off, timeout=25, every=0.005)
    assert not refused, "the other server was never refused"
    assert peak < 1.1 * MAXMEMORY_MB * MB  # used_memory counts the log's buffer, which maxmemory leaves out
    row = until(lambda: Server.objects.filter(pk=7).exclude(cut_off_at=None).first())
    assert row.cut_off_reason and Server.objects.get(pk=8).cut_off_at is None
    alert = Alert.objects.get(ended_at=None)
    assert (alert.name, alert.subject, alert.severity) == ("server-cut-off", "server:7", "critical")
    assert LogEntry.objects.filter(additional_data__verb="server.cut_off").count() == 1
    until(lambda: clients.ended == clients.clients)
    assert not [row for row in client.client_list() if row["user"] == "h7"]


def test_unread_answers_end_a_connection_or_switch_its_server_off(small_redis, two, watch, flood):
    client = small_redis.client()
    other = redis.Redis(port=small_redis.port, username="h8", password="pw8")
    clients, peak = flood("unread_answers"), 0

    def is_over():
        nonlocal peak
        peak = max(peak, client.info("memory")["used_memory"])
        other.xadd("h:8:telemetry", {"d": "{}"}, maxlen=10)
        return clients.ended == clients.clients or "off" in client.acl_getuser("h7")["flags"]

    until(is_over, timeout=20)
    assert 20 * MB < peak < MAXMEMORY_MB * MB
    until(lambda: client.info("memory")["used_memory"] < 20 * MB)


def test_half_a_command_is_not_kept_without_end(small_redis, two, watch):
    """Redis itself ends the connections with the longest, where unfinished commands grow too long together."""
    sockets = []
    for _ in range(40):
        one = socket.create_connection(("127.0.0.1", small_redis.port))
        sockets.append(one)
        one.settimeout(0.5)
        one.sendall(b"*3\r\n$4\r\nAUTH\r\n$2\r\nh7\r\n$3\r\npw7\r\n*3\r\n$3\r\nSET\r\n$5\r\nh:7:x\r\n$4000000\r\n")
        with contextlib.suppress(OSError):
            one.sendall(b"v" * 3_900_000)
    client = small_redis.client()
    assert client.info("memory")["used_memory"] < MAXMEMORY_MB * MB
    until(lambda: "off" in client.acl_getuser("h7")["flags"] or _query_buffers(client) < MAXMEMORY_MB * MB / 4)
    for one in sockets:
        one.close()


def _query_buffers(client):
    return sum(int(row["qbuf"]) for row in client.client_list() if row["user"] == "h7")


def test_connections_without_end_are_switched_off_too(small_redis, two, watch):
    client = small_redis.client()
    kept = []
    with contextlib.suppress(redis.RedisError):
        for _ in range(3 * quota.MOST_CONNECTIONS):
            own = redis.Redis(port=small_redis.port, username="h7", password="pw7", retry=None)
            own.ping()
            kept.append(own)
    until(lambda: "off" in client.acl_getuser("h7")["flags"])
    assert "connections" in until(lambda: Server.objects.get(pk=7).cut_off_reason)[1]


def test_the_others_go_on_and_the_flooded_agent_comes_back_by_itself(
    small_redis, two, watch, flood, tmp_path, operator
):
    client = small_redis.client()
    agents = {
        pk: AgentServer(tmp_path, f"redis://h{pk}:pw{pk}@127.0.0.1:{small_redis.port}/0", server_id=pk) for pk in (7, 8)
    }
    ingests = {pk: SmallIngest(client, pk) for pk in agents}
    try:
        folders = {}
        for pk, agent in agents.items():
            agent.start("link")
            folders[pk] = agent.run(
                "import time\nfor n in range(200):\n  print(n, flush=True)\n  time.sleep(.01)", wait=False
            )
        until(lambda: ingests[7].poll() and ingests[7].texts(folders[7].name))
        began = time.monotonic()
        flood("huge_values")
        until(lambda: (ingests[8].poll(), folders[8].name in ingests[8].done)[1], timeout=15)
        assert time.monotonic() - began < 8
        assert ingests[8].texts(folders[8].name) == [str(n) for n in range(200)]
        assert "does not take it" not in (agents[8].state / "link.log").read_text()
        row = until(lambda: Server.objects.filter(pk=7).exclude(cut_off_at=None).first())
        until(lambda: "does not take it" in (agents[7].state / "link.log").read_text())
        quota.switch_on(row, by=operator)
        until(lambda: (ingests[7].poll(), folders[7].name in ingests[7].done)[1], timeout=20)
        assert ingests[7].texts(folders[7].name) == [str(n) for n in range(200)], "nothing of its job is lost"
        assert client.info("memory")["used_memory"] < 20 * MB
        assert not Alert.objects.filter(ended_at=None).exists()
    finally:
        for agent in agents.values():
            agent.close()


def test_a_restarted_console_leaves_it_off(small_redis, two):
    assert quota.switch_off(small_redis.client(), 7)
    quota.note_cut_off(7, Text("满", "it was full"))
    enrol.grant(small_redis.client())
    assert "off" in small_redis.client().acl_getuser("h7")["flags"]
    assert not quota.switch_off(small_redis.client(), 7)


def test_who_may_switch_on_and_when(small_redis, two, operator, viewer, settings):
    with pytest.raises(NotAllowed):
        quota.switch_on(two[0], by=viewer)
    with pytest.raises(Conflict):
        quota.switch_on(two[0], by=operator)
    quota.note_cut_off(7, Text("满", "it was full"))
    two[0].refresh_from_db()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    with pytest.raises(Unavailable):
        quota.switch_on(two[0], by=operator)
    assert Server.objects.get(pk=7).cut_off_at


def test_a_simulated_server_is_never_switched_off(small_redis, two):
    Server.objects.filter(pk=7).update(simulated=True)
    watch = quota.Watch(small_redis.url)
    watch.report(7, Text("满", "it was full"))
    assert watch.look() == []
    assert "on" in small_redis.client().acl_getuser("h7")["flags"]


@pytest.mark.parametrize(
    ("maxmemory_mb", "servers", "mb"), [(0, 5, 64), (128, 1, 31), (277, 21, 64), (1256, 1000, 64), (300, 290, 8)]
)
def test_the_quota_follows_from_memory_and_servers(settings, maxmemory_mb, servers, mb):
    assert quota.quota_mb(maxmemory_mb * MB, servers) == mb
    settings.SERVER_QUOTA_MB = 5
    assert quota.quota_mb(maxmemory_mb * MB, servers) == 5


def test_under_pressure_less_is_too_much(settings):
    held = {1: quota.Holding(keys=9 * MB), 2: quota.Holding(keys=2 * MB), 3: quota.Holding(buffers=9 * MB)}
    assert quota.too_much(held, 100 * MB, 256 * MB, 3) == {}
    assert sorted(quota.too_much(held, 200 * MB, 256 * MB, 3)) == [1, 3]


def test_whose_very_many_keys_are_is_told_by_some_of_them(small_redis, two, monkeypatch):
    client = small_redis.client()
    for pk, count in ((7, 4000), (8, 100)):
        client.mset({f"h:{pk}:{n}": "v" * 500 for n in range(count)})
    exact = quota.holdings(client)
    monkeypatch.setattr(quota, "SCANNED_KEYS", 1000)
    told = quota.holdings(client)
    assert 0.8 * exact[7].keys < told[7].keys < 1.2 * exact[7].keys
    assert told.get(8, quota.Holding()).keys < exact[7].keys / 5


def test_looking_costs_little_where_nothing_grows(small_redis, two):
    watch = quota.Watch(small_redis.url)
    watch.look()
    client = small_redis.client()
    before = client.info("commandstats").get("cmdstat_scan", {"calls": 0})["calls"]
    for _ in range(20):
        watch.look()
    assert client.info("commandstats").get("cmdstat_scan", {"calls": 0})["calls"] == before


# ---------- what leaves no key behind, or the wrong one ----------


@pytest.fixture
def ingest(small_redis, two):
    made = Ingest(small_redis.url)
    made.beats.psubscribe(streams.BEATS)
    made.beats.get_message(timeout=1)
    return made


@pytest.mark.parametrize(("size", "n"), [(10, 400), (300_000, 10)])
def test_beats_without_end_are_switched_off_and_those_of_others_heard(ingest, small_redis, size, n):
    own = redis.Redis(port=small_redis.port, username="h7", password="pw7")
    pipe = own.pipeline(transaction=False)
    for _ in range(n):
        pipe.publish("h:7:beat", "x" * size)
    pipe.execute()
    small_redis.client().publish("h:8:beat", json.dumps({"active": ["a1-1-00000000"]}))
    until(lambda: (ingest.tick(time.time(), time.monotonic()), 8 in ingest.telemetry.last_heard)[1])
    assert ingest.quota.look() == [7]
    assert "off" in small_redis.client().acl_getuser("h7")["flags"]


@pytest.mark.parametrize("key", ["h:7:logs", "h:7:telemetry"])
def test_something_else_in_the_place_of_a_stream_stops_nobody_but_its_server(ingest, small_redis, key):
    client = small_redis.client()
    client.xadd("h:8:telemetry", {"d": json.dumps({"type": "sample", "seq": 1, "t": time.time(), "npus": []})})
    redis.Redis(port=small_redis.port, username="h7", password="pw7").set(key, "no stream")
    ingest.tick(time.time(), time.monotonic())
    ingest.tick(time.time(), time.monotonic())
    assert ingest.telemetry.nows[8]["seq"] == 1
    assert client.exists(key) == 0
    assert ingest.quota.look() == [7]
