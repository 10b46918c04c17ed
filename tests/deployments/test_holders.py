"""Who holds NPUs, in words; and the span of time for a restart."""

import json
import os
import subprocess

import pytest

from deployments.agent import holders
from deployments.stacks import window
from deployments.stacks.said import FINE

OWN = {"pid": os.getpid(), "user": "zhangwei", "name": "python", "devices": ["davinci0", "davinci_manager"]}
BOX = {"pid": 77, "user": "root", "name": "vllm", "devices": ["davinci3"], "container": "ab12" * 16}


def answer(*rows, code=0, said=""):
    return subprocess.CompletedProcess([], code, "".join(json.dumps(row) + "\n" for row in rows), said)


def problem(*rounds, listed=(), names=frozenset(), asked=None):
    """What is said where the helper tells of `rounds` in turn, the last again and again."""
    left = list(rounds)

    def ask(action):
        if asked is not None:
            asked.append(action)
        return answer() if action != "npu-holders" else left.pop(0) if len(left) > 1 else left[0]

    return holders.problem(ask, lambda: list(listed), names, patience_s=0.05)


def test_nobody_holds_them():
    assert problem(answer()) == FINE
    assert problem(answer(OWN), answer()) == FINE  # the agent's own npu-smi, for a moment


def test_they_are_named_by_pid_user_and_container():
    said = problem(answer(OWN, BOX)).en
    assert f"PID {os.getpid()} (zhangwei" in said and "python: davinci0, davinci_manager" in said
    assert "PID 77 (root, container ab12ab12ab12) vllm: davinci3" in said and "owners" in said
    assert "容器 ab12ab12ab12" in problem(answer(BOX)).zh


def test_what_npu_smi_alone_knows_is_named_where_it_lives():
    shown = {"pid": os.getpid(), "name": "VLLMWorker", "devices": ["NPU 1.0"]}
    assert "VLLMWorker: NPU 1.0" in problem(answer(), listed=[shown]).en
    assert problem(answer(), listed=[{**shown, "pid": 2**22 + 1}]) == FINE
    assert problem(answer(OWN), listed=[shown]).en.count("PID") == 1


def test_only_those_of_the_ring_matter():
    assert problem(answer(BOX), names={"davinci0", "NPU 0.0"}) == FINE
    assert "davinci3" in problem(answer(BOX), names={"davinci3"}).en


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"exporter": True}, "started by hand"),
        ({"kubernetes": True}, "Kubernetes"),
        ({"unit": "x.service"}, "x.service"),
    ],
)
def test_an_exporter_that_cannot_be_stopped_is_said_with_what_to_do(more, said):
    asked = []
    assert said in problem(answer({**OWN, **more}), asked=asked).en
    assert asked.count("stop-exporters") == (1 if "exporter" in more else 0)


def test_a_helper_that_does_not_answer_begins_nothing():
    with pytest.raises(holders.NotAsked, match="no such action"):
        problem(answer(code=2, said="root-helper: there is no such action"))


@pytest.mark.parametrize(
    ("span", "now", "within"),
    [
        ("22:00-05:00", "22:00", True), ("22:00-05:00", "04:59", True), ("22:00-05:00", "05:00", False),
        ("22:00-05:00", "12:00", False), ("01:30-02:30", "01:29", False), ("01:30-02:30", "02:29", True),
        ("00:00-00:00", "13:00", False),
    ],
)  # fmt: skip
def test_a_span_of_time_may_go_over_midnight(span, now, within):
    assert window.is_within(span, window.minutes(now)) is within


@pytest.mark.parametrize("words", [[], ["25:00-26:00"], ["22:00"], ["22:00-05:00", "x"], ["22:00-05:00\n"]])
def test_no_span_is_no_wait(words):
    assert window.main(words) == 2
