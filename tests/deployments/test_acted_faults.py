"""Faults that an operator has a simulated server act out: each ends as a real one would, with the words for it."""

import os
import time

import pytest

from deployments.agent import runner, spool
from deployments.agent.config import load
from deployments.demo import acts, contents, play, reboots
from deployments.demo.scene import DONE, Ended
from deployments.stacks import faults, frozen, plan, verdict
from deployments.stacks.catalogue import built_in
from deployments.stacks.draft import as_step
from deployments.steps import Step, Text
from tests.deployments.acted import Acted, Log, at_once
from tests.waiting import until

__all__ = ["at_once"]
pytestmark = pytest.mark.usefixtures("at_once")
NEW = "vllm-ascend-0.23.0"
UPGRADE = {"firmware": "9.0.0.0.205"}
FROM_NOTHING = {"gone": ("opt/vllm-ascend", *(f"usr/local/Ascend/{one}" for one in ("cann", "cann-9.1.0", "nnal")))}


DRIVER, FIRMWARE = "Upgrade the driver to 26.0.RC1", "Upgrade the firmware to 9.0.0.0.205"
VLLM, DIFFERS = "Install vLLM 0.23.0, without a device", "is different from"


def upgraded(folder):
    return Acted("kp-13", folder)


def fresh(folder):
    """A server with a driver, and nothing above it."""
    return Acted("kp-17", folder, **FROM_NOTHING)


@pytest.fixture(autouse=True)
def questions_do_not_stand_long(monkeypatch):
    monkeypatch.setattr("deployments.agent.heard.QUESTION_S", 0.05)
    monkeypatch.setattr(play, "LOOK_S", 0.02)


CASES = [
    # fault, server, choices, title of the step that fails, words of the verdict, words of the log
    ("dkms_fails", upgraded, UPGRADE, DRIVER, "modules were not built", "Dkms install failed"),
    ("lspci_missing", upgraded, UPGRADE, DRIVER, "install pciutils", "missing tools: lspci,"),
    ("prompt", upgraded, UPGRADE, DRIVER, "[y/n]”, and nobody", "It waits for an answer"),
    ("wrong_chip", upgraded, UPGRADE, FIRMWARE, "is for another chip", "than 910B1"),
    ("wrong_chip", fresh, {}, "Install CANN operators 9.1.0", "is for another chip", "than Ascend910"),
    ("digest_mismatch", upgraded, UPGRADE, "Check the package of the firmware", "its digest differs", DIFFERS),
    ("digest_mismatch", fresh, {}, "Check the package of CANN toolkit", "its digest differs", DIFFERS),
    ("index_hangs", fresh, {}, VLLM, "does not answer (timed out)", "Read timed out"),
    ("disk_full", fresh, {}, "Install CANN toolkit 9.1.0", "disk is full", "No space left on device"),
    (
        "disk_full", fresh, {"cann": "shared", "wheelhouse": "/srv/wheels"}, "Install CANN toolkit 9.1.0",
        "disk is full", "No space left on device",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "make", "options", "title", "reason", "said"), CASES)
def test_a_fault_ends_the_job_in_words_and_there_is_a_way_out(tmp_path, fault, make, options, title, reason, said):
    server = make(tmp_path)
    log = server.install(NEW, fault, **options)
    assert log.ended["state"] == "failed" and reason in log.reason and said in log.text, log.text
    failed = [name for name, state in log.steps if state == "failed"]
    assert failed == [title] and f"“{title}” failed" in log.reason
    after = log.steps[[name for name, _state in log.steps].index(title) + 1 :]
    assert {state for name, state in after if "exporters" not in name} <= {"skipped"}  # they are started in any case
    assert log.texts[1].startswith("按要求模拟故障") and faults.FAULTS[fault].title.en in log.texts[1]
    assert not server.facts()["stack_current"]  # nothing half installed is used

    options = {name: value for name, value in options.items() if name != "wheelhouse"}
    again = server.install(NEW, **options)
    assert again.ended["state"] == "succeeded", again.text
    assert verdict.of(server.installed(), built_in().stacks[NEW], built_in()).word == verdict.MATCHES


@pytest.mark.parametrize("fault", ["dkms_fails", "prompt"])
def test_a_driver_that_failed_half_way_shows_as_half_installed(tmp_path, fault):
    server = upgraded(tmp_path)
    server.install(NEW, fault, **UPGRADE)
    facts, sample = server.facts(), server.member.sampler.sample()
    assert (facts["driver"], facts["driver_whole"]) == ("26.0.rc1", False)
    assert sample["error"]["code"] == -8005 and sample["npus"] == []
    made = server.plan(NEW, **UPGRADE)
    assert made.mode == "upgrade" and "driver" in [step.key for step in made.to_run]


def test_a_fault_that_comes_before_anything_changes_leaves_the_driver_as_it_was(tmp_path):
    server = upgraded(tmp_path)
    for fault in ("digest_mismatch", "wrong_chip"):
        server.install(NEW, fault, **UPGRADE)
        assert (server.facts()["driver"], server.facts()["driver_whole"]) == ("24.1.0", True)


def test_the_disk_that_fills_up_under_pip_leaves_the_stack_in_use(tmp_path):
    server = fresh(tmp_path)
    server.install("vllm-ascend-0.22.1rc1")
    made = server.plan(NEW, cann="own")
    steps = [step for step in made.steps if step.layer != "cann"]
    log = server.run("install", stack=NEW, plan=frozen.write(_with(made, steps)), fault="disk_full")
    assert log.ended["state"] == "failed" and "the stack in use is as it was" in log.reason
    assert server.facts()["stack_current"] == "vllm-ascend-0.22.1rc1"


def _with(made, steps):
    import dataclasses

    return dataclasses.replace(made, steps=tuple(steps))


def test_a_server_that_does_not_come_back_is_silent_until_somebody_goes_there(tmp_path, monkeypatch):
    monkeypatch.setattr(reboots, "DEAD_S", 0.6)
    server = upgraded(tmp_path)
    made = server.plan(NEW, **UPGRADE)
    folder = server.queue("install", stack=NEW, plan=frozen.write(made), fault="no_return")
    until(lambda: server.turn() or server.member.is_down(time.time()), 30, every=0.001)
    assert "does not come back by itself" in (folder / "lines").read_text()
    server.turn()
    assert (folder / "reboot").exists() and not spool.is_alive(folder) and server.member.is_silent(time.time()) is False
    until(lambda: server.turn() or spool.has_ended(folder), 30, every=0.001)
    assert Log(folder).ended["state"] == "succeeded"  # the job takes its true state when the server is back


# ---------- which faults a plan gives occasion for ----------


def test_only_faults_that_could_come_about_are_offered(tmp_path):
    server = fresh(tmp_path)
    names = faults.possible([as_step(step) for step in server.plan(NEW).steps])
    assert names == ["wrong_chip", "digest_mismatch", "index_hangs", "disk_full"]
    host = upgraded(tmp_path)
    names = faults.possible([as_step(step) for step in host.plan(NEW, **UPGRADE).steps])
    assert names == ["dkms_fails", "lspci_missing", "prompt", "wrong_chip", "digest_mismatch", "no_return"]
    server.install(NEW)
    assert faults.possible([as_step(step) for step in server.plan(NEW).steps]) == []


# ---------- as any job ----------


def test_a_cancel_ends_it_between_two_lines(tmp_path, monkeypatch):
    server = fresh(tmp_path)
    monkeypatch.setenv("ASCEND_DEMO_SPEED", "1")
    folder = server.queue("install", stack=NEW, plan=frozen.write(server.plan(NEW)))
    until(lambda: server.turn() or b"Verifying" in (folder / "lines").read_bytes(), 20, every=0.001)
    (folder / "cancel").write_text("{}")
    until(lambda: server.turn() or spool.has_ended(folder), 20, every=0.001)
    log = Log(folder)
    assert log.ended["state"] == "cancelled" and "cancelled" in log.states
    assert [event["rung"] for event in log.events if event["e"] == "cancelling"] == ["interrupt"]


def test_a_step_past_its_deadline_is_ended(tmp_path, monkeypatch):
    def for_ever(step, scene, fault):
        yield 3600.0
        return DONE

    monkeypatch.setattr(acts, "of", for_ever)
    monkeypatch.setenv("ASCEND_DEMO_SPEED", "1")
    server = fresh(tmp_path)
    steps = [plan.PlannedStep("x", "cann", Text("零", "Wait"), argv=("npu-smi", "info"), timeout_s=0.1)]
    log = server.run("install", stack=NEW, plan=frozen.write(_with(server.plan(NEW), steps)))
    assert "did not end within its 0.1 s" in log.reason and "Past its deadline" in log.text


def test_a_play_that_was_cut_off_goes_on_with_the_step_it_was_at(tmp_path, monkeypatch):
    server = fresh(tmp_path)
    monkeypatch.setenv("ASCEND_DEMO_SPEED", "1")
    folder = server.queue("install", stack=NEW, plan=frozen.write(server.plan(NEW)))
    until(lambda: server.turn() or b'"e":"step","n":5' in (folder / "lines").read_bytes(), 60, every=0.001)
    for one in server.member.adopter.plays.values():
        os.close(one.lock)  # as when the process is killed
    monkeypatch.setenv("ASCEND_DEMO_SPEED", "1000")
    server.start()
    until(lambda: server.turn() or spool.has_ended(folder), 30, every=0.001)
    log = Log(folder)
    assert log.ended["state"] == "succeeded", log.text
    told = [(event["e"], event.get("n")) for event in log.events if event["e"] in ("started", "step", "step_end")]
    assert len(told) == len(set(told))  # nothing is told twice


def test_a_play_that_was_cut_off_behind_a_step_that_failed_remembers_it(tmp_path, monkeypatch):
    def acted(step, scene, fault):
        yield 60.0 if step.always else 0.0
        return DONE if step.always else Ended(1)

    monkeypatch.setattr(acts, "of", acted)
    server = fresh(tmp_path)
    steps = [
        plan.PlannedStep("x", "host", Text("零", "Change it"), argv=("x",)),
        plan.PlannedStep("y", "host", Text("一", "Put it right"), argv=("y",), always=True),
        plan.PlannedStep("z", "cann", Text("二", "Go on"), argv=("z",)),
    ]
    monkeypatch.setenv("ASCEND_DEMO_SPEED", "1")
    folder = server.queue("install", stack=NEW, plan=frozen.write(_with(server.plan(NEW), steps)))
    until(lambda: server.turn() or b'"e":"step","n":2' in (folder / "lines").read_bytes(), 60, every=0.001)
    for one in server.member.adopter.plays.values():
        os.close(one.lock)  # as when the process is killed
    monkeypatch.setenv("ASCEND_DEMO_SPEED", "1000")
    server.start()
    until(lambda: server.turn() or spool.has_ended(folder), 30, every=0.001)
    log = Log(folder)
    assert log.states == ["failed", "succeeded", "skipped"] and log.ended["state"] == "failed"
    assert "Step 1 “Change it” failed." in log.reason


def test_two_claims_of_one_server_are_played_one_after_the_other_or_both(tmp_path):
    server = fresh(tmp_path)
    made = frozen.write(server.plan(NEW))
    folders = [server.queue("install", stack=NEW, plan=made) for _ in range(2)]
    until(lambda: server.turn() or all(map(spool.has_ended, folders)), 60, every=0.001)
    assert [Log(folder).ended["state"] for folder in folders] == ["succeeded"] * 2


def test_no_command_of_an_acted_job_is_ever_run_on_this_machine(tmp_path):
    """Even a runner that is started for one by mistake does nothing."""
    server = fresh(tmp_path)
    marker = tmp_path / "touched"
    steps = [plan.PlannedStep("x", "cann", Text("零", "Touch"), argv=("touch", str(marker)))]
    folder = server.queue("install", stack=NEW, plan=frozen.write(_with(server.plan(NEW), steps)))
    config = load(server.member.config.path)
    assert config.simulated and runner.main([str(folder), "--config", str(config.path)]) == 0
    assert not (folder / "lines").exists() and not marker.exists()
    until(lambda: server.turn() or spool.has_ended(folder), 20, every=0.001)
    assert Log(folder).ended["exit"] == 127 and not marker.exists()


def test_engines_that_hold_npus_keep_the_driver_as_it_is(tmp_path):
    server = Acted("kp-01", tmp_path, driver="24.1.0", loaded="24.1.0")
    log = server.install(NEW, **UPGRADE)
    assert "NPUs are held, so it was not begun and nothing was changed" in log.reason and "davinci" in log.reason
    assert server.facts()["driver"] == "24.1.0"


def test_a_plan_that_is_none_ends_the_job_and_not_the_demo(tmp_path):
    log = fresh(tmp_path).run("install", stack=NEW, plan="{")
    assert log.ended["state"] == "failed" and "The runner itself failed" in log.reason


def test_what_is_not_acted_out_says_so():
    step = Step(Text("零", "x"), ["{python}", "-m", "deployments.stacks.new_one", "y"])
    act = acts.of(step, None)
    assert "is not acted out" in next(act)


def test_the_speed_is_bounded(monkeypatch):
    for given, wanted in (("5", 5.0), ("0", 0.1), ("1e9", 1000.0), ("x", 1.0)):
        monkeypatch.setenv("ASCEND_DEMO_SPEED", given)
        assert play.speed() == wanted
    assert contents.accepts("26.1.0") == "[7.0.0,9.9.99]" and contents.accepts("23.0.7") == "[7.0.0,7.1.99]"
