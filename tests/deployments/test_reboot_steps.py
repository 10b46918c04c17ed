"""A job that restarts its server: the mark, the adopter, the runner that goes on, and every place to cut them."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from deployments.agent import adopt, processes, reboots, spool
from deployments.agent.adopt import Adopter
from tests.deployments.agent_bench import PROGRAM, AgentServer, ended, events, records, texts
from tests.waiting import until

RUNNER = [sys.executable, str(PROGRAM), "runner"]


@pytest.fixture
def boot(tmp_path, monkeypatch):
    """The boot id file of this test; write another id to have the server start anew."""
    path = tmp_path / "boot_id"
    path.write_text("boot-1\n")
    monkeypatch.setenv("ASCEND_BOOT_ID_FILE", str(path))
    monkeypatch.setenv("TEST_TELL_S", "0")
    monkeypatch.setattr(adopt, "GO_ON_AFTER_S", 0.0)
    return path


@pytest.fixture
def server(tmp_path, boot):
    made = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    yield made
    made.close()


def claim(server, **params):
    body = json.loads(server.payload(kind="try_reboot"))
    body["params"] = params
    text = json.dumps(body)
    assert spool.claim(server.config.attempts, body["attempt"], text) == "claimed"
    return server.config.attempts / body["attempt"]


def run(server, folder, **env):
    """One real runner, to its end."""
    argv = [*RUNNER, str(folder), "--config", str(server.config.path)]
    return subprocess.run(argv, timeout=30, start_new_session=True, env={**os.environ, **env})


def tick_until_ended(server, folder):
    adopter = Adopter(server.config, RUNNER)
    until(lambda: (adopter.tick(), ended(folder))[1])
    return adopter


def names(folder):
    return [event["e"] for event in events(folder)]


def test_it_waits_with_the_same_boot_id_and_goes_on_with_another_in_the_same_log(server, boot):
    folder = claim(server, before=["print('one')"], by="print('restarting')", after=["print('two')", "print('three')"])
    run(server, folder)
    waits = events(folder, "waiting_reboot")[0]
    assert waits["boot_id"] == "boot-1" and waits["within_s"] == 1800.0 and waits["by_hand"] is False
    assert abs(waits["until"] - time.time() - 1800) < 60
    assert ended(folder) is None and not spool.is_alive(folder)

    adopter = Adopter(server.config, RUNNER)
    assert [adopter.tick() for _ in range(3)] == [[], [], []]
    assert ended(folder) is None and not adopter.children

    boot.write_text("boot-2\n")
    tick_until_ended(server, folder)
    assert ended(folder)["state"] == "succeeded"
    assert texts(folder) == ["one", "restarting", "two", "three"]
    assert names(folder) == [
        "started", "step", "step_end", "step", "waiting_reboot", "rebooted", "step_end",
        "step", "step_end", "step", "step_end", "ended",
    ]  # fmt: skip
    assert events(folder, "rebooted")[0]["boot_id"] == "boot-2"
    assert [event["n"] for event in events(folder, "step")] == [1, 2, 3, 4]
    assert not reboots.is_left(folder)


def test_a_restart_by_hand_runs_nothing_and_waits(server, boot):
    folder = claim(server, after=["print('after')"])
    run(server, folder)
    assert events(folder, "waiting_reboot")[0]["by_hand"] is True
    assert texts(folder) == []
    boot.write_text("boot-2\n")
    tick_until_ended(server, folder)
    assert texts(folder) == ["after"] and ended(folder)["state"] == "succeeded"


def test_two_restarts_in_one_job(server, boot):
    folder = claim(server, by="print('restarting')", after=["print('after')"], times=2)
    run(server, folder)
    boot.write_text("boot-2\n")
    adopter = Adopter(server.config, RUNNER)
    until(lambda: (adopter.tick(), names(folder).count("waiting_reboot") == 2)[1])
    until(lambda: not spool.is_alive(folder))
    assert [adopter.tick() for _ in range(3)] == [[], [], []] and ended(folder) is None
    boot.write_text("boot-3\n")
    until(lambda: (adopter.tick(), ended(folder))[1])
    assert ended(folder)["state"] == "succeeded"
    assert texts(folder) == ["restarting", "restarting", "after"]
    assert [event["boot_id"] for event in events(folder, "rebooted")] == ["boot-2", "boot-3"]


def test_the_time_is_over_without_a_restart(server):
    folder = claim(server, reboot_s=0.2, after=["print('never')"])
    run(server, folder)
    time.sleep(0.25)
    adopter = tick_until_ended(server, folder)
    assert ended(folder)["state"] == "failed"
    assert "did not restart within 0.00333333 minutes" in ended(folder)["reason"][1]
    assert events(folder, "step_end") == [{"e": "step_end", "n": 1, "state": "failed", "exit": None, "took_s": None}]
    assert texts(folder) == [] and adopter.tick() == []


@pytest.mark.parametrize("boots", ["boot-1", "boot-2"])
def test_a_cancel_ends_the_waiting_also_when_the_server_is_back(server, boot, boots):
    folder = claim(server, after=["print('never')"])
    run(server, folder)
    boot.write_text(f"{boots}\n")
    (folder / "cancel").touch()
    tick_until_ended(server, folder)
    assert ended(folder)["state"] == "cancelled"
    assert events(folder, "step_end")[0]["state"] == "cancelled"
    assert texts(folder) == []


def test_a_cancel_that_arrives_a_moment_after_the_boot_comes_first(server, boot, monkeypatch):
    monkeypatch.setattr(adopt, "GO_ON_AFTER_S", 60.0)
    folder = claim(server, after=["print('never')"])
    run(server, folder)
    boot.write_text("boot-2\n")
    adopter = Adopter(server.config, RUNNER)
    assert adopter.tick() == []
    (folder / "cancel").touch()
    adopter.tick()
    assert ended(folder)["state"] == "cancelled" and not adopter.children


def test_a_restart_that_is_refused_fails_the_step_at_once(server, boot):
    folder = claim(server, by="import sys; print('no'); sys.exit(3)", after=["print('never')"])
    run(server, folder)
    assert ended(folder)["state"] == "failed" and ended(folder)["exit"] == 3
    assert not reboots.is_left(folder)
    boot.write_text("boot-2\n")
    assert Adopter(server.config, RUNNER).tick() == []
    assert texts(folder) == ["no"]


def test_a_command_that_the_shutdown_itself_ends_has_done_its_work(server, boot):
    """systemd sends SIGTERM to everybody, the runner too; nobody has cancelled anything."""
    program = "import os, signal; os.kill(os.getppid(), signal.SIGTERM); os.kill(os.getpid(), signal.SIGTERM)"
    folder = claim(server, by=program, after=["print('after')"])
    run(server, folder)
    assert ended(folder) is None and reboots.is_left(folder)
    boot.write_text("boot-2\n")
    tick_until_ended(server, folder)
    assert ended(folder)["state"] == "succeeded" and texts(folder) == ["after"]


def test_a_restart_during_an_ordinary_step_fails_the_job(server, boot):
    folder = claim(server, before=["import time; print('up', flush=True); time.sleep(60)"])
    process = subprocess.Popen(
        [*RUNNER, str(folder), "--config", str(server.config.path)], start_new_session=True, env=os.environ.copy()
    )
    until(lambda: (folder / "lines").exists() and texts(folder) == ["up"])
    for pid in processes.session_members(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    boot.write_text("boot-2\n")
    tick_until_ended(server, folder)
    assert ended(folder)["state"] == "failed"
    assert "The server restarted while the job ran." in ended(folder)["reason"][1]


def test_without_room_the_server_is_not_restarted(server):
    folder = claim(server, by="print('never')", after=["print('never')"])
    run(server, folder, TEST_DIE="no-room")
    assert ended(folder)["state"] == "failed"
    assert "The disk is full" in ended(folder)["reason"][1] and texts(folder) == []


# Every place at which a runner may be cut, with what is true afterwards: (the log's state, how often `after` ran).
CUTS = [
    ("before the mark", "failed"),
    ("mark left", "succeeded"),
    ("waiting written", "succeeded"),
    ("command began", "succeeded"),
    ("command ended", "succeeded"),
]


@pytest.mark.parametrize(("place", "state"), CUTS)
def test_a_runner_that_is_killed_before_the_boot(server, boot, place, state):
    folder = claim(server, by="print('restarting')", after=["print('after')"])
    assert run(server, folder, TEST_DIE=place).returncode == -signal.SIGKILL
    adopter = Adopter(server.config, RUNNER)
    if state == "succeeded":
        adopter.tick()
        assert names(folder)[-1] == "waiting_reboot" and names(folder).count("waiting_reboot") == 1
    boot.write_text("boot-2\n")
    tick_until_ended(server, folder)
    assert ended(folder)["state"] == state
    assert texts(folder).count("after") == (state == "succeeded")
    assert texts(folder).count("restarting") <= 1
    assert names(folder).count("ended") == 1


@pytest.mark.parametrize(
    ("place", "state"),
    [
        ("identity written", "succeeded"),
        ("rebooted written", "succeeded"),
        ("heading written", "succeeded"),
        ("mark cleared", "failed"),
    ],
)
def test_a_runner_that_is_killed_after_the_boot(server, boot, place, state):
    folder = claim(server, by="print('restarting')", after=["print('after')"])
    run(server, folder)
    boot.write_text("boot-2\n")
    assert run(server, folder, TEST_DIE=place).returncode == -signal.SIGKILL
    tick_until_ended(server, folder)
    assert ended(folder)["state"] == state
    # A command that may have run is never run again; what was said is said once.
    assert texts(folder).count("after") == (state == "succeeded")
    assert [names(folder).count(name) for name in ("rebooted", "ended")] == [1, 1]
    assert len(events(folder, "step")) == 2
    assert [event["n"] for event in events(folder, "step_end")] == [1, 2]


def test_a_line_that_the_power_cut_broke_is_mended(server, boot):
    folder = claim(server, after=["print('after')"])
    run(server, folder)
    with (folder / "lines").open("ab") as file:
        file.write(b"1700000000000\to\thal")
    boot.write_text("boot-2\n")
    tick_until_ended(server, folder)
    assert ended(folder)["state"] == "succeeded"
    assert texts(folder) == ["hal", "after"]


def test_a_boot_id_that_cannot_be_read_lets_nothing_go_on(server, boot):
    folder = claim(server, reboot_s=0.5, after=["print('never')"])
    boot.unlink()
    run(server, folder)
    boot.write_text("boot-2\n")
    assert not reboots.is_anew(reboots.read(folder), server.config)
    tick_until_ended(server, folder)
    assert ended(folder)["state"] == "failed" and texts(folder) == []


def test_a_damaged_event_in_the_log_keeps_nobody_from_going_on(server, boot):
    folder = claim(server, after=["print('after')"])
    run(server, folder)
    with (folder / "lines").open("ab") as file:
        file.write(b'1700000000000\tv\t{"e":"step","n":"x"}\n1700000000000\tv\t{\n')
    Adopter(server.config, RUNNER).tick()
    boot.write_text("boot-2\n")
    tick_until_ended(server, folder)
    assert ended(folder)["state"] == "succeeded" and (folder / "lines").read_bytes().count(b"\to\tafter\n") == 1


def test_a_job_that_waits_is_named_by_the_beat_and_kept_from_leaving(server, boot):
    from deployments.agent.shipper import Shipper

    folder = claim(server)
    run(server, folder)
    shipper = Shipper(None, "h:7", server.config.attempts)
    shipper._scan()
    assert shipper.active() == [folder.name]
    assert [kind for kind, _text in records(folder)][-1] == "v"
