"""Two hosts with one identity: by unit, and with two real agents of one config against a real ingest."""

import json
import os
import subprocess
import sys
import time

import pytest
from django.utils import timezone

from console import streams
from console.ingest import Ingest
from console.models import Alert
from deployments.agent import identity
from deployments.models import Job, Server
from deployments.services import clones, history, jobs
from tests.conftest import ROOT
from tests.deployments.handed import finish, handed, kinds_of_tests  # noqa: F401
from tests.waiting import until

A, B, REBOOTED = ("m1", "b1", "kp-01"), ("m1", "b2", "kp-01"), ("m1", "b3", "kp-01")


def clash(*heard, every=5.0):
    kept = clones.Heard()
    return [kept.hear(host, 100 + n * every) for n, host in enumerate(heard)]


def test_two_hosts_that_take_turns_are_two_and_a_reboot_or_a_rename_is_none():
    assert clash(A, B, A, B) == [False, False, False, True]
    assert not any(clash(A, A, B, B, B))
    assert not any(clash(A, REBOOTED, B, B)), "two reboots"
    assert not any(clash(A, B, A, A)), "a rename that was taken back"
    assert not any(clash(A, B, A, B, every=61)), "hours apart: a disk that was moved and moved back"
    assert clash(*[A, A, A, B] * 3)[-1], "beats of the one may get lost"


@pytest.mark.parametrize("named", [None, 7, [], "x", {}, {"machine": 1, "boot": "", "name": ""}, {"machine": "a"}])
def test_a_beat_of_another_shape_names_no_host(named):
    assert clones.read(named) is None


def test_many_hosts_take_no_more_memory():
    kept = clones.Heard()
    for n in range(1000):
        kept.hear((f"m{n}", "b", "n"), n)
    assert len(kept.at) == clones.MOST_HOSTS


def test_a_host_is_known_by_a_hash_of_its_machine_id(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    (tmp_path / "etc/hostname").write_text("kp-77\n")
    found = identity.host(tmp_path)
    assert found.name == "kp-77" and len(found.machine) == 16 and "0123456789abcdef" not in found.machine
    (tmp_path / "etc/machine-id").write_text("ffffffffffffffffffffffffffffffff\n")
    assert identity.host(tmp_path).machine != found.machine
    assert identity.host(tmp_path / "none").machine == ""


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("valkey", "kinds_of_tests")
def test_quarantine_holds_jobs_marks_those_that_run_and_says_what_to_do(server, operator):
    running = jobs.queue_job(server, "hold_locks", {"locks": ["a"]}, by=operator)
    Job.objects.filter(pk=running.pk).update(state="running")
    queued = jobs.queue_job(server, "hold_locks", {"locks": ["b"]}, by=operator)
    assert clones.begin(server.pk, [A, B])
    assert handed(server) == [running.pk]
    assert jobs.queue_job(server, "hold_locks", {"locks": ["c"]}, by=operator).waiting
    assert Job.objects.get(pk=running.pk).mark and not Job.objects.get(pk=queued.pk + 1).mark
    alert = Alert.objects.get(name="identity-clash", subject=f"server:{server.pk}", ended_at=None)
    assert "b1" in alert.what[1] and "b2" in alert.what[1] and alert.link == "/servers/kp-01/"
    assert [row.field for row in history.page(server)[0]] == ["quarantine"]
    finish(running)
    assert clones.end(server.pk) and not clones.end(server.pk)
    assert queued.pk in handed(server)
    assert Alert.objects.get(pk=alert.pk).ended_at


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("valkey")
def test_the_watch_ends_a_quarantine_a_minute_after_one_host_is_gone(server):
    watch = clones.Watch()
    watch.settle(0.0)
    at = 100.0
    for n in range(4):
        at += 5
        watch.hear(server.pk, beat((A, B)[n % 2]), at)
    server.refresh_from_db()
    assert [host["boot"] for host in server.quarantine["hosts"]] == ["b1", "b2"]
    for _n in range(11):
        at += 5
        watch.hear(server.pk, beat(A), at)
        watch.settle(at)
    assert Server.objects.get().quarantine, "B was heard less than a minute ago"
    watch.hear(server.pk, beat(A), at + 5)
    watch.settle(at + 6)
    assert Server.objects.get().quarantine is None
    # Another ingest that has just begun knows nothing, and ends nothing for a minute.
    clones.begin(server.pk, [A, B])
    fresh = clones.Watch()
    fresh.settle(1000.0)
    fresh.settle(1059.0)
    assert Server.objects.get().quarantine
    fresh.settle(1061.0)
    assert Server.objects.get().quarantine is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("valkey")
def test_after_a_new_join_what_was_heard_before_says_nothing(server):
    watch = clones.Watch()
    for n in range(4):
        watch.hear(server.pk, beat((A, B)[n % 2]), n)
    clones.end(server.pk, why="rejoined")
    watch.settle(5.0)
    watch.hear(server.pk, beat(A), 6.0)
    watch.hear(server.pk, beat(A), 7.0)
    assert Server.objects.get().quarantine is None


def beat(host):
    return dict(zip(("machine", "boot", "name"), host, strict=True))


@pytest.mark.django_db(transaction=True)
def test_two_real_agents_of_one_config_are_found_and_a_restart_of_one_is_not(valkey, tmp_path):
    server = Server.objects.create(name="kp-07", last_seen_at=timezone.now())
    redis = valkey.client()
    redis.execute_command("ACL", "SETUSER", f"h{server.pk}", *streams.acl_rules(server.pk, server.redis_password))
    links = [agent(tmp_path, name, server, valkey) for name in ("first", "second")]
    ingest = Ingest(valkey.url)
    ingest.beats.psubscribe(streams.BEATS)
    try:
        first = links[0]()
        turns(ingest, lambda: ingest.hosts.servers.get(server.pk))
        first.kill()
        first.wait()
        again = links[0]()
        turns(ingest, lambda: Server.objects.get().last_seen_at, seconds=6)
        assert Server.objects.get().quarantine is None
        second = links[1]()
        found = turns(ingest, lambda: Server.objects.get().quarantine, seconds=40)
        assert {host["name"] for host in found["hosts"]} == {"first", "second"}
        assert again.poll() is None and second.poll() is None
    finally:
        for process in (first, again, second):
            process.kill()
            process.wait()


def agent(folder, name, server, valkey):
    """A function that starts the link of one host of this name: its own machine id, the config of all."""
    root = folder / name
    (root / "etc").mkdir(parents=True)
    (root / "etc/machine-id").write_text(f"{name:0<32}\n")
    (root / "etc/hostname").write_text(f"{name}\n")
    config = {
        "server_id": server.pk, "name": server.name, "prefix": streams.prefix(server.pk), "key": server.key,
        "redis_url": f"redis://h{server.pk}:{server.redis_password}@127.0.0.1:{valkey.port}/0",
        "state_dir": str(root / "state"), "env": {"ASCEND_ROOT": str(root)},
    }  # fmt: skip
    (root / "state" / "attempts").mkdir(parents=True)
    (root / "config.json").write_text(json.dumps(config))
    argv = [sys.executable, "-m", "deployments.agent.link", "--config", str(root / "config.json")]
    return lambda: subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True)


def turns(ingest, condition, seconds=15):
    """Turn the ingest until the condition holds."""

    def turn():
        ingest.holds_lease(time.monotonic())
        ingest.tick(time.time(), time.monotonic())
        return condition()

    return until(turn, timeout=seconds, every=0.05)
