"""Links, codes and crashes: a rule knows its line however the line comes, and healthy lines say nothing."""

from pathlib import Path

import pytest

from monitoring import diagnoses

FIXTURES = Path(__file__).parent.parent / "fixtures" / "failures"
KNOWN = [line.split("\t", 1) for line in (FIXTURES / "runtime_lines.tsv").read_text().splitlines()]
HEALTHY = (FIXTURES / "runtime_healthy.txt").read_text().splitlines()
WAYS = {
    "plain": "{}",
    "engine": "(EngineCore_DP0 pid=41) ERROR 11-20 10:11:12 [core.py:700] {}",
    "worker": "(Worker_DP1_TP3_EP11 pid=977) ERROR 03-02 23:59:59 [multiproc_executor.py:822] {}",
    "rank": "[rank13]: {}",
    "journal": "Nov 20 10:11:12 node-7 ascend-engine[4120]: {}",
    "container": "2026-11-20T10:11:12.123456789Z stderr F {}",
    "coloured": "\x1b[0;36m(Worker pid=3)\x1b[0;0m {}",
    "ray": "(RayWorkerWrapper pid=31, ip=10.9.0.4) {} [repeated 7x across cluster]",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_line_is_known_whatever_stands_around_it(way):
    for name, line in KNOWN:
        found = diagnoses.diagnose(WAYS[way].format(line))
        assert found and found[0].rule.id == name, (line, [one.rule.id for one in found])


def test_marks_may_be_wide():
    for name, line in KNOWN:
        found = diagnoses.diagnose(line.translate(str.maketrans(":,()", "：，（）")))
        assert found and found[0].rule.id == name, (line, [one.rule.id for one in found])


def test_letters_may_be_great_or_small():
    for name, line in KNOWN:
        if not name.startswith("code-"):
            assert name in [one.rule.id for one in diagnoses.diagnose(line.lower())], line


@pytest.mark.parametrize("line", HEALTHY, ids=range(len(HEALTHY)))
def test_a_healthy_line_says_nothing(line):
    assert diagnoses.diagnose(line) == []


def test_codes_of_the_runtime_mean_what_its_header_says():
    said = {rule.code: rule.cause.en for rule in diagnoses.bundled() if rule.code}
    assert "callback" in said["107015"] and "handle" in said["107017"] and "task took too long" in said["107020"]
