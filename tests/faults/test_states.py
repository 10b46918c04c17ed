"""A job's state from end to end: what silence makes of it, and what it becomes when its server is back.

One silence for all: the far agent is killed while six jobs are at different places, and started again when they are
lost. The runners live on, as they do when only the agent is gone.
"""

import os
import shutil
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from deployments.agent import spool
from tests.faults import checks
from tests.faults.conftest import HOLD_S
from tests.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def silence(stage):
    """The jobs by what happens to each, their states while the server was silent, and how long that took."""
    scene = stage.scene()
    scene.hold_s = HOLD_S
    scene.settle()
    jobs = SimpleNamespace(
        goes_on=scene.queue("kp-far", lines=3000, pause_s=0.005, steps=1, held=True),
        ends=scene.queue("kp-far", lines=900, pause_s=0.004),
        is_cancelled=scene.queue("kp-far", lines=600, steps=1, held=True),
        runs_again=scene.queue("kp-far", lines=600, steps=1, held=True),
        dies=scene.queue("kp-far", lines=600, steps=1, held=True),
        is_wiped=scene.queue("kp-far", lines=600, steps=1, held=True),
    )
    for told in vars(jobs).values():
        scene.await_running(told)
    until(lambda: {scene.state_of(told)["state"] for told in vars(jobs).values()} == {"running"}, 20)
    scene.strike("agent", signal.SIGKILL)
    scene.far.wait()
    began = time.monotonic()
    behind = scene.queue("kp-far", lines=50, steps=1)  # the console does not know yet
    until(lambda: {scene.state_of(told)["state"] for told in vars(jobs).values()} == {"lost"}, 90)
    lost_after_s = time.monotonic() - began
    shown = {name: scene.state_of(told) for name, told in vars(jobs).items()}
    behind_shown = scene.state_of(behind)
    until(lambda: spool.has_ended(scene.attempts("kp-far") / jobs.ends.attempt), 60)

    _kill_session(scene, jobs.dies)
    scene.killed.add(jobs.dies.attempt)
    _kill_session(scene, jobs.is_wiped)
    shutil.rmtree(scene.attempts("kp-far") / jobs.is_wiped.attempt)
    scene.cancel(jobs.is_cancelled)
    again = []
    retrying = threading.Thread(target=lambda: again.append(scene.insist(f"/jobs/{jobs.runs_again.id}/retry", {})))
    retrying.start()  # refused while the server is silent, and repeated: it comes through as soon as it is back
    scene.start_far()
    retrying.join()
    assert again
    return SimpleNamespace(
        scene=scene, jobs=jobs, behind=behind, shown=shown, behind_shown=behind_shown, lost_after_s=lost_after_s
    )


def _kill_session(scene, told):
    """The runner and all it has started."""
    for pid in scene.session(told):
        os.kill(pid, signal.SIGKILL)


def test_jobs_of_a_silent_server_are_lost_within_90_s_and_say_why(silence):
    assert silence.lost_after_s < 90
    for shown in silence.shown.values():
        assert shown["state"] == "lost"
        assert "kp-far has sent no beat since" in shown["reason"]


def test_a_job_that_never_reached_the_silent_server_is_still_queued_and_runs_when_it_is_back(silence):
    assert silence.behind_shown["state"] == "queued"
    checks.check_job(silence.scene, silence.behind)


def test_a_lost_job_that_went_on_is_running_again_and_ends(silence):
    scene, told = silence.scene, silence.jobs.goes_on
    until(lambda: scene.state_of(told)["state"] == "running", 30)
    scene.release(told)
    checks.check_job(scene, told)


def test_a_lost_job_that_ended_meanwhile_has_its_end(silence):
    checks.check_job(silence.scene, silence.jobs.ends)


def test_a_lost_job_whose_runner_died_has_failed_and_says_so(silence):
    checks.check_job(silence.scene, silence.jobs.dies)
    assert silence.scene.state_of(silence.jobs.dies)["state"] == "failed"


def test_a_job_cancelled_while_it_was_lost_is_cancelled_when_its_server_is_back(silence):
    checks.check_job(silence.scene, silence.jobs.is_cancelled)
    assert silence.scene.state_of(silence.jobs.is_cancelled)["state"] == "cancelled"


def test_a_lost_job_that_is_run_again_never_runs_twice_at_once_and_has_a_log_of_its_own(silence):
    scene, first = silence.scene, silence.jobs.runs_again
    second = scene.newest(first)
    assert second.attempt != first.attempt
    until((scene.attempts("kp-far") / second.attempt / "spec.json").exists, 30)
    time.sleep(3)  # the adopter looks every 2 s
    assert first.notes.read_text().split() == [first.attempt, "1", "began"]
    assert scene.state_of(second)["state"] == "queued"
    scene.release(first)
    scene.await_ended(second)
    notes = first.notes.read_text().splitlines()
    assert notes == [
        f"{attempt} 1 {word}" for attempt in (first.attempt, second.attempt) for word in ("began", "ended")
    ]
    checks.check_lines(scene, second)
    until(lambda: scene.is_stored(first), 90)
    checks.check_lines(scene, first)  # the old one's log is whole as well
    assert scene.state_of(second)["state"] == "succeeded"


def test_a_lost_job_of_which_its_server_knows_nothing_stays_lost_and_can_be_run_again(silence):
    scene, first = silence.scene, silence.jobs.is_wiped
    assert scene.state_of(first)["state"] == "lost"
    scene.insist(f"/jobs/{first.id}/retry", {})
    second = scene.newest(first)
    until(lambda: scene.state_of(second)["state"] == "running", 60)
    scene.cancel(second)
    checks.check_job(scene, second, notes_before=1)


def test_nothing_is_left_after_the_silence(silence):
    checks.check_nothing_is_left(silence.scene)
