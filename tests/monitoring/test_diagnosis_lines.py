"""Logs quote users, warn of what went well in the end, and say the same thing many times: none of that is a cause."""

import pytest

from monitoring import diagnoses
from monitoring.diagnoses import lines

OOM = "torch.OutOfMemoryError: NPU out of memory. Tried to allocate 1.25 GiB (NPU 3; 29 GiB total; 27.8 GiB allocated"
TIMEOUT = "EI0006: [PID: 7] Getting socket times out. Reason: 1. the peer does not answer"


def names(*log):
    return [one.rule.id for one in diagnoses.diagnose("\n".join(log))]


@pytest.mark.parametrize(
    "before",
    [
        "INFO 12-01 [logger.py:39] Received request cmpl-3: prompt: 'why ",
        "[2026-12-01] Finish: obj=GenerateReqInput(rid=7), out='",
        "{'role': 'user', 'content': '",
        "输入：“",
    ],
)
def test_words_of_users_are_no_cause(before):
    assert names(before + OOM) == []


def test_an_error_before_what_is_quoted_counts():
    assert names(OOM + ", prompt='hello'")[0] == "npu-out-of-memory"


def test_a_warning_counts_only_where_something_failed():
    warning = "WARNING 12-01 08:00:00 [x.py:1] ModuleNotFoundError: No module named 'mooncake'"
    assert names(warning) == []
    assert names(warning, "ERROR 12-01 08:00:09 [core.py:7] EngineCore failed to start.") != []


def test_a_rule_may_say_that_a_calm_line_is_enough():
    assert names("INFO 12-01 [worker.py:7] Available KV cache memory: -2.50 GiB") == ["kv-cache-negative"]


def test_the_line_of_an_error_is_told_before_that_of_a_warning():
    (found,) = diagnoses.diagnose(f"WARNING 12-01 NPU out of memory\n{OOM}")
    assert (found.line, found.times) == (2, 2)


def test_who_waits_in_vain_goes_behind_who_failed_before():
    assert names(OOM, *["INFO 12-01 waiting"] * 400, TIMEOUT)[0] == "npu-out-of-memory"
    assert names(TIMEOUT, OOM)[0] == "hccl-link-timeout"


def test_colours_and_bars_of_progress_hide_nothing():
    bar = "".join(f"Loading: {n}%|###\r" for n in range(600))
    assert names(f"{bar}\x1b[31mERROR\x1b[0m \x1b[1m{OOM}\x1b[0m\r") == ["npu-out-of-memory"]


CALM = ["(EngineCore_DP0 pid=7) INFO 12-01 x", "[WARN] x", "W20261201 08:00:00 x", "[警告] x", "WARNING: x"]
LOUD = ["ERROR 12-01 INFO", "[rank1]:[W1201 08:00 x.ts:57] Warning: EZ9999", "INFORMATION lost", "x: information"]


@pytest.mark.parametrize(("line", "calm"), [*((line, True) for line in CALM), *((line, False) for line in LOUD)])
def test_how_loud_a_line_is(line, calm):
    assert lines.is_calm(line) is calm


def test_a_cause_is_found_behind_any_number_of_ordinary_lines(monkeypatch):
    monkeypatch.setattr("monitoring.diagnoses.scan.MOST_LINES", 300)
    ordinary = [f"INFO 12-01 Engine 000: size: {n}, being idle, event e{n}: done, error: 0" for n in range(400)]
    preempted = ["WARNING 12-01 Sequence group 5 is preempted by PreemptionMode.RECOMPUTE"] * 400
    assert names(*ordinary, *preempted, OOM)[0] == "npu-out-of-memory"
