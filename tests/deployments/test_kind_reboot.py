"""The kind `reboot`: its steps, what it refuses, and what it waits for afterwards."""

import fcntl
import json
import os

import pytest

from deployments import kinds
from deployments.demo import reboots as demo_reboots
from deployments.kinds import reboot, reboot_look
from deployments.kinds.check_probes.host import Host
from deployments.steps import ATTEMPT
from tests.deployments.check_bench import demo_host

BUSY, FREE, UNREADABLE = 0, 2, 15  # numbers of demo servers


@pytest.fixture
def attempt(tmp_path):
    folder = tmp_path / "attempts" / "a7-1-00000007"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def items(tmp_path, monkeypatch):
    path = tmp_path / "items"
    monkeypatch.setenv("ASCEND_ITEMS", str(path))
    return lambda: {item["key"]: item for item in map(json.loads, path.read_text().splitlines())}


def test_it_looks_restarts_as_root_and_waits_for_the_npus():
    params = reboot.Params()
    look, restart, answer = reboot.steps(params)
    assert look.argv[2:] == ["deployments.kinds.reboot_look", "before"]
    assert restart.reboot and restart.needs_root and restart.argv == ["reboot", ATTEMPT] and restart.reboot_s == 1800.0
    assert answer.argv[-1] == "900" and answer.timeout_s > 900
    assert reboot.locks(params) == ["server"] and reboot.undo(params) == []
    assert not any(step.reboot or step.needs_root for step in (look, answer))


def test_by_hand_it_needs_no_root_and_runs_nothing():
    _look, restart, _answer = reboot.steps(reboot.Params(force=True, by_hand=True, minutes=5))
    assert restart.reboot and restart.argv == [] and not restart.needs_root and restart.reboot_s == 300.0


def test_it_is_a_kind_that_says_that_it_needs_root():
    assert kinds.describe("reboot")["needs_root"] is True and "reboot" in kinds.that_need_root()
    assert "reboot_look" not in kinds.names() and "check" not in kinds.that_need_root()


def test_a_free_server_may_restart_and_its_npus_are_kept_in_mind(tmp_path, attempt, items):
    host = demo_host(tmp_path, FREE)
    assert reboot_look.before(host, attempt, force=False)
    assert {key: item["verdict"] for key, item in items().items()} == {"npu_processes": "ok", "other_jobs": "ok"}
    assert len(json.loads((attempt / reboot_look.KEPT).read_text())) == len(host.npus) > 0


@pytest.mark.parametrize(("name", "verdict"), [(BUSY, "failed"), (UNREADABLE, "unknown")])
def test_a_server_in_use_or_unreadable_is_refused_unless_forced(tmp_path, attempt, items, name, verdict):
    host = demo_host(tmp_path, name)
    assert not reboot_look.before(host, attempt, force=False)
    assert items()["npu_processes"]["verdict"] == verdict
    assert reboot_look.before(host, attempt, force=True)
    assert items()["npu_processes"]["verdict"] == "warning"


def test_another_job_that_runs_there_is_named(tmp_path, attempt, items):
    other = attempt.parent / "a41-2-00000001"
    other.mkdir()
    ended = attempt.parent / "a40-1-00000001"
    ended.mkdir()
    (ended / "lock").touch()
    descriptor = os.open(other / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        assert not reboot_look.before(demo_host(tmp_path, FREE), attempt, force=False)
    finally:
        os.close(descriptor)
    assert items()["other_jobs"]["found"] == "#41"


def test_afterwards_it_waits_until_every_npu_answers(tmp_path, attempt, items, monkeypatch):
    host = demo_host(tmp_path, FREE)
    names = reboot_look.names(host)
    (attempt / reboot_look.KEPT).write_text(json.dumps(names))
    monkeypatch.setattr(reboot_look, "AGAIN_S", 0.01)
    asked = []

    def fresh():
        asked.append(1)
        return host if len(asked) >= 3 else Host(tmp_path / "nothing")

    monkeypatch.setattr(reboot_look, "Host", fresh)
    assert reboot_look.after(attempt, 30.0)
    assert len(asked) == 3 and items()["npus_back"]["found"] == str(len(names))


def test_an_npu_that_stays_away_fails_it_with_its_name(tmp_path, attempt, items, monkeypatch):
    host = demo_host(tmp_path, FREE)
    (attempt / reboot_look.KEPT).write_text(json.dumps([*reboot_look.names(host), "0000:FF:00.0/0"]))
    monkeypatch.setattr(reboot_look, "Host", lambda: host)
    assert not reboot_look.after(attempt, 0.0)
    item = items()["npus_back"]
    assert item["verdict"] == "failed" and "0000:FF:00.0/0" in item["remedy"][1] and item["job"]["kind"] == "check"


def test_npu_smi_that_does_not_answer_fails_it(tmp_path, attempt, items, monkeypatch):
    monkeypatch.setattr(reboot_look, "Host", lambda: demo_host(tmp_path, UNREADABLE))
    assert not reboot_look.after(attempt, 0.0)
    assert "npu-smi does not answer" in items()["npus_back"]["remedy"][1]


def test_a_server_without_npus_is_back_at_once(tmp_path, attempt, items, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(reboot_look, "Host", lambda: Host(tmp_path / "nothing"))
    assert reboot_look.after(attempt, 0.0)
    assert items()["npus_back"]["verdict"] == "ok"


# ---------- simulated servers ----------


def test_a_simulated_server_goes_down_and_comes_back_with_another_boot_id(tmp_path):
    boot_id = tmp_path / "root" / demo_reboots.BOOT_ID
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("before\n")
    (tmp_path / "engines").mkdir()
    assert not demo_reboots.is_down(tmp_path, 100.0) and demo_reboots.uptime_s(tmp_path) is None
    demo_reboots.begin(tmp_path, 100.0)
    assert [demo_reboots.is_down(tmp_path, t) for t in (100.0, 102.0, 120.0)] == [False, True, True]
    assert boot_id.read_text() == "before\n"
    assert not demo_reboots.is_down(tmp_path, 122.0)
    assert len(boot_id.read_text().strip()) == 32 and not (tmp_path / "engines").exists()
    after = boot_id.read_text()
    assert not demo_reboots.is_down(tmp_path, 500.0) and boot_id.read_text() == after
    assert demo_reboots.uptime_s(tmp_path) > 0
    (tmp_path / demo_reboots.FILE).write_text("{")
    assert not demo_reboots.is_down(tmp_path, 102.0)
