"""The demo's one process, over a real Redis: samples, beats, and jobs of simulated servers from queue to last line."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from console import streams
from deployments.agent import ROOT, keys, processes, spool
from deployments.agent.config import parse
from deployments.demo import __main__ as program
from deployments.demo import fleet, loop, member
from deployments.demo.loop import Loop
from deployments.kinds import check
from tests.deployments.agent_bench import KEY, AgentServer, SmallIngest
from tests.waiting import until

ALARM, A910 = "kp-04", "kp-05"


def fields(name, url, folder):
    number = int(name.removeprefix("kp-"))
    return {
        "server_id": number,
        "name": name,
        "redis_url": url,
        "prefix": f"h:{number}",
        "key": KEY,
        "state_dir": str(folder / name),
        "interval_s": 1.0,
        "simulated": True,
        "env": {},
    }


class Demo:
    """A demo process under its own Redis user, each server under its own."""

    def __init__(self, folder, valkey, names):
        self.folder, self.client = folder / "demo", valkey.client()
        self.folder.mkdir()
        address = f"127.0.0.1:{valkey.port}/0"
        self.client.execute_command("ACL", "SETUSER", "demo", *streams.demo_acl_rules("pw"))
        for name in names:
            number = int(name.removeprefix("kp-"))
            self.client.execute_command("ACL", "SETUSER", f"h{number}", *streams.acl_rules(number, "pw"))
        servers = [fields(name, f"redis://h{int(name[3:])}:pw@{address}", self.folder) for name in names]
        path = self.folder / "config.json"
        path.write_text(json.dumps({"redis_url": f"redis://demo:pw@{address}", "servers": servers}))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "deployments.demo", "--config", str(path)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
        )

    def samples(self, number):
        entries = [json.loads(entry[b"d"]) for _id, entry in self.client.xrange(streams.telemetry(number))]
        return [entry for entry in entries if entry["type"] == "sample"]

    def run_check(self, folder, number, ingest, timeout=30):
        """Dispatch `check` as the console does and read its lines until it has ended; its events."""
        console = AgentServer(folder / f"console-{number}", "redis://", server_id=number)
        body = console.payload(kind="check", params={"deep": False})
        attempt = json.loads(body)["attempt"]
        console.enqueue(self.client, body, rq_id=attempt)
        until(lambda: ingest.poll() is not None and attempt in ingest.done, timeout)
        return attempt, [json.loads(text) for text in ingest.texts(attempt, b"v")]

    def attempts(self, name):
        return self.folder / name / "attempts"

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(10)
        self.process.stderr.close()
        return code


@pytest.fixture
def demo(tmp_path, valkey):
    made = []

    def start(*names, valkey=valkey):
        made.append(Demo(tmp_path, valkey, names))
        return made[-1]

    yield start
    for one in made:
        one.stop()


def test_every_server_sends_samples_facts_and_beats(demo, valkey):
    running = demo(ALARM, A910)
    listener = valkey.client().pubsub(ignore_subscribe_messages=True)
    listener.subscribe(streams.beat(4), streams.beat(5))
    until(lambda: len(running.samples(4)) >= 2 and len(running.samples(5)) >= 2)
    first, second = running.samples(4)[:2]
    assert first["simulated"] and second["seq"] == first["seq"] + 1
    assert 0.9 <= second["t"] - first["t"] <= 1.3
    assert [npu["health"] for npu in first["npus"]].count("Alarm") == 1
    facts = [json.loads(entry[b"d"]) for _id, entry in valkey.client().xrange(streams.telemetry(5))]
    assert "23.0.7" in [one["facts"]["driver"] for one in facts if one["type"] == "facts"]
    heard = {}
    until(
        lambda: (m := listener.get_message(timeout=1)) and heard.setdefault(m["channel"], m["data"]) and len(heard) == 2
    )
    assert json.loads(heard[b"h:4:beat"])["worker"] is True
    assert valkey.client().acl_log() == []


def test_a_check_runs_from_the_queue_to_its_last_line(demo, valkey, tmp_path):
    running = demo(ALARM, A910)
    ingest = SmallIngest(valkey.client(), 5)
    attempt, events = running.run_check(tmp_path, 5, ingest)
    items = {event["key"]: event for event in events if event["e"] == "item"}
    assert (items["family"]["verdict"], items["family"]["found"]) == ("failed", "910A")
    assert items["architecture"]["found"] == "aarch64"
    assert items["container_runtime"]["verdict"] == "warning"  # this machine's docker is not seen
    assert [event["state"] for event in events if event["e"] == "step_end"] == ["succeeded"] * len(check.GROUPS)
    assert events[-1] == {"e": "ended", "state": "succeeded", "exit": 0, "reason": None}
    until(lambda: (running.attempts(A910) / attempt / "shipped").exists())
    assert ingest.duplicates == 0
    assert not running.attempts(ALARM).exists()
    assert valkey.client().acl_log() == []


def test_a_runner_that_is_killed_is_buried(demo, valkey, tmp_path):
    running = demo(A910)
    console = AgentServer(tmp_path / "console", "redis://", server_id=5)
    body = console.payload(kind="check", params={"deep": False})
    folder = running.attempts(A910) / json.loads(body)["attempt"]
    console.enqueue(running.client, body, rq_id=folder.name)
    pid = until(lambda: spool.runner_identity(folder) if folder.exists() else None).pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: spool.has_ended(folder))
    assert not processes.session_members(pid)


def test_a_redis_that_comes_back_finds_the_fleet_there(demo, own_valkey):
    running = demo(A910, valkey=own_valkey)
    until(lambda: running.samples(5))
    own_valkey.kill()
    time.sleep(1.5)
    assert running.process.poll() is None
    own_valkey.start()
    own_valkey.client().execute_command("ACL", "SETUSER", "demo", *streams.demo_acl_rules("pw"))
    running.client = own_valkey.client()
    since = time.time()
    until(lambda: any(sample["t"] > since for sample in running.samples(5)), timeout=15)


def test_it_ends_at_once_when_asked(demo):
    running = demo(A910)
    until(lambda: running.samples(5))
    began = time.monotonic()
    assert running.stop() == 0
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("{", "not whole"),
        ("[]", "not whole"),
        ('{"redis_url": "redis://"}', "not whole"),
        ('{"redis_url": "redis://", "servers": [{}]}', "server_id is missing"),
        ('{"redis_url": "redis://", "servers": [1]}', "not whole"),
    ],
)
def test_a_bad_config_is_answered_in_words(tmp_path, capsys, monkeypatch, text, words):
    monkeypatch.setenv("LANG", "C.UTF-8")
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    assert program.main(["--config", str(path)]) == 2
    assert words in capsys.readouterr().err


def test_a_name_that_is_not_of_the_demo_is_answered_in_words(tmp_path, capsys):
    path = tmp_path / "config.json"
    servers = [fields("kp-01", "redis://", tmp_path) | {"name": "real-server"}]
    path.write_text(json.dumps({"redis_url": "redis://127.0.0.1:1", "servers": servers}))
    assert program.main(["--config", str(path)]) == 2
    assert "real-server" in capsys.readouterr().err


@pytest.fixture
def in_hand(tmp_path, valkey):
    """A loop in this process, which the test turns by hand."""

    def make(count):
        names = [fleet.server(index).name for index in range(count)]
        configs = [parse(tmp_path / "config.json", fields(name, valkey.url, tmp_path)) for name in names]
        return Loop(configs, valkey.client(), tmp_path)

    return make


def turn_for(made, seconds):
    until_ = time.monotonic() + seconds
    while time.monotonic() < until_:
        time.sleep(made.turn())


def test_a_silent_server_says_nothing_and_takes_no_job(in_hand, valkey, monkeypatch):
    monkeypatch.setattr(member.physics, "is_silent", lambda server, t: server.name == "kp-02")
    started = []
    monkeypatch.setattr(member.Member, "start_worker", lambda self: started.append(self.config.name))
    client = valkey.client()
    for number in (1, 2):
        client.rpush(f"{keys.rq_prefix(f'h:{number}')}:queue:jobs", "x")
    turn_for(in_hand(2), 1.4)
    assert client.xlen(streams.telemetry(1)) >= 1
    assert client.xlen(streams.telemetry(2)) == 0
    assert set(started) == {"kp-01"}


def test_no_more_than_three_workers_at_once(in_hand, valkey, monkeypatch):
    class Worker:
        returncode = 0

        def poll(self):
            return None

    started = []

    def start(self):
        started.append(self.config.name)
        self.worker = Worker()

    monkeypatch.setattr(member.Member, "start_worker", start)
    for number in range(1, 7):
        valkey.client().rpush(f"{keys.rq_prefix(f'h:{number}')}:queue:jobs", "x")
    made = in_hand(6)
    turn_for(made, 1.0)
    assert len(started) == 3
    made.members[0].worker = None
    turn_for(made, 0.6)
    assert len(started) == 4


def test_a_large_fleet_is_sampled_more_rarely_and_evenly(in_hand, monkeypatch):
    monkeypatch.setattr(loop, "FULL_RATE", 10)
    made = in_hand(30)
    assert made.interval_s == 3.0
    assert len({round(at, 1) for at, _place in made.due}) >= 29
    assert in_hand(5).interval_s == 1.0


def test_a_demo_of_no_servers_is_idle(in_hand):
    assert in_hand(0).turn() == loop.TICK_S


def test_a_demo_that_was_removed_ends(demo):
    running = demo(ALARM)
    until(lambda: running.samples(4))
    (running.folder / "removed").write_text("admin")
    assert running.process.wait(5) == 0
