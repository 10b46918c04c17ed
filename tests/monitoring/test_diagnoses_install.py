"""Failures of packages, drivers, containers and hardware: what surrounds a line must not change what it says."""

from pathlib import Path

import pytest

from monitoring import diagnoses

FIXTURES = Path(__file__).parent.parent / "fixtures" / "failures"
KNOWN = [line.split("\t", 1) for line in (FIXTURES / "install_lines.tsv").read_text().splitlines()]
HEALTHY = (FIXTURES / "install_healthy.txt").read_text().splitlines()
AROUND = [
    "{}",
    "(EngineCore_DP0 pid=123) ERROR 11-20 10:11:12 [core.py:700] {}",
    "Nov 30 09:00:00 node-7 vllm[4711]: {}",
    "2026-11-30T09:00:00.123456789Z stderr F {}",
    "\x1b[31m{}\x1b[0m",
]


@pytest.mark.parametrize("around", AROUND, ids=range(len(AROUND)))
def test_a_failure_is_known_by_its_line_whatever_stands_around_it(around):
    wrong = {}
    for name, line in KNOWN:
        found = diagnoses.diagnose(f"INFO starting\n{around.format(line)}\nINFO ended")
        if not found or (found[0].rule.id, found[0].line) != (name, 2):
            wrong[line] = [one.rule.id for one in found]
    assert wrong == {}


def test_each_healthy_line_says_nothing():
    found = {line: [one.rule.id for one in diagnoses.diagnose(line)] for line in HEALTHY}
    assert {line: names for line, names in found.items() if names} == {}
