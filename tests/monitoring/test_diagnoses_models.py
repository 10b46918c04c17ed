"""Failures of quantizing, of converting and of fetching models: known by one line, however it is framed."""

from pathlib import Path

import pytest

from monitoring import diagnoses

FIXTURES = Path(__file__).parent.parent / "fixtures" / "failures"
LINES = [line.split("\t", 1) for line in (FIXTURES / "models_lines.tsv").read_text().splitlines()]
HEALTHY = (FIXTURES / "models_healthy.txt").read_text().splitlines()
FRAMES = (
    "{}",
    "(EngineCore_DP0 pid=4711) ERROR 11-20 10:11:12 [core.py:700] {}",
    "Nov 20 10:11:12 node7 docker[991]: {}",
    "2026-11-20T10:11:12.123456789Z stderr F {}",
    "\x1b[31m{}\x1b[0m",
    "[rank3]: {} ",
)


@pytest.mark.parametrize(("name", "line"), LINES, ids=[f"{name}-{n}" for n, (name, _line) in enumerate(LINES)])
def test_a_failure_is_known_in_every_frame(name, line):
    for frame in FRAMES:
        found = diagnoses.diagnose("INFO starting\n" + frame.format(line))
        assert found and found[0].rule.id == name, (frame, [one.rule.id for one in found])
    for changed in (line.upper(), line.lower()):
        assert name in [one.rule.id for one in diagnoses.diagnose(changed)], changed


@pytest.mark.parametrize("line", HEALTHY)
def test_what_is_healthy_says_nothing(line):
    assert diagnoses.diagnose(line) == []
