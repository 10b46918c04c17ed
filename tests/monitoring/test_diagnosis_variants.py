"""The same failure on another machine, in another version, behind another prefix: what is said of it stays the same."""

import json
import re
from pathlib import Path

import pytest

from monitoring import diagnoses

FIXTURES = Path(__file__).parent.parent / "fixtures" / "failures"
KNOWN = [line.split("\t", 1) for line in (FIXTURES / "lines.tsv").read_text().splitlines()]
HEALTHY = (FIXTURES / "healthy.txt").read_text().splitlines()
AT_BEGIN = {"program-exception", "command-says-error"}  # these ask what a line begins with
NUMBERED = {"npu-full-by-others"}  # its numbers are what it is about


def prefixed(prefix):
    return lambda line: "\n".join(prefix + one for one in line.split("\n"))


def other_numbers(line):
    """Sizes, counts, pids and versions, but not what is part of a code, a name or an error's number."""
    return re.sub(r"(?<![\w.\-\[(/:=])(\d{2,5})(?![\w.\-\]):])", lambda found: str(int(found[1]) + 1), line)


PREFIXES = {
    "engine": "(EngineCore_DP0 pid=90123) ERROR 11-20 10:11:12 [core.py:700] ",
    "worker": "(Worker_TP3_EP3 pid=4711) ERROR 01-02 03:04:05 [multiproc_executor.py:962] ",
    "rank": "[rank6]: ",
    "docker": "vllm-1  | ",
    "kubernetes": "2026-12-01T08:00:00.123456789Z stderr F ",
    "journal": "Dec 01 08:00:00 kp-07 vllm[4711]: ",
    "sglang": "[2026-12-01 08:00:00 TP7] ",
    "python": "2026-12-01 08:00:00,123 - root - ERROR - ",
}
VARIANTS = {
    **{name: prefixed(text) for name, text in PREFIXES.items()},
    "colours": lambda line: f"\x1b[0;36m(APIServer pid=1)\x1b[0;0m \x1b[31m{line}\x1b[0m",
    "crlf": lambda line: line + "\r",
    "progress": lambda line: "Loading:  25%|██▌   | 1/4 [00:01<00:03]\rLoading: 100%|████| 4/4 [00:04<00:00]\r " + line,
    "json": lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "now"}, ensure_ascii=False),
    "numbers": other_numbers,
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_failure_is_known_in_another_guise(variant):
    lost = {}
    for name, line in KNOWN:
        if name in AT_BEGIN or (variant == "numbers" and name in NUMBERED):
            continue
        if variant == "json" and re.search(r"[\"\\]|\s\s", line):
            continue  # quotes are written otherwise there
        found = diagnoses.diagnose("\n".join([*HEALTHY[:4], VARIANTS[variant](line), HEALTHY[4]]))
        if not found or found[0].rule.id != name:
            lost[line] = [one.rule.id for one in found]
    assert lost == {}


def test_healthy_logs_stay_silent_in_another_guise():
    for variant in ("docker", "kubernetes", "journal", "crlf", "numbers"):
        assert diagnoses.diagnose("\n".join(VARIANTS[variant](line) for line in HEALTHY)) == [], variant


def test_a_cause_counts_wherever_it_stands_in_a_log_with_echoes():
    log = (FIXTURES / "out_of_memory_with_echoes.log").read_text().splitlines()
    ordinary = ["INFO 12-01 08:00:00 [loggers.py:9] Engine 000: Running: 3 reqs"] * 300
    parted = [one for line in log for one in (line, *ordinary)]
    assert diagnoses.diagnose("\n".join(parted))[0].rule.id == "npu-out-of-memory"
