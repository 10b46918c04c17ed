"""Engines that do not start, or refuse a request: each failure is known however its line is printed."""

from pathlib import Path

import pytest

from monitoring import diagnoses

FIXTURES = Path(__file__).parent.parent / "fixtures" / "failures"
KNOWN = [line.split("\t", 1) for line in (FIXTURES / "serve_lines.tsv").read_text().splitlines()]
HEALTHY = (FIXTURES / "serve_healthy.txt").read_text().splitlines()
NAMED = [f"{name}-{number}" for number, (name, _line) in enumerate(KNOWN)]
PRINTED = {
    "plain": "{}",
    "engine": "(EngineCore_DP0 pid=123) ERROR 11-20 10:11:12 [core.py:700] {}",
    "journal": "Nov 30 07:08:09 host-3 vllm[4711]: {}",
    "kubernetes": "2026-11-30T07:08:09.123456789Z stderr F {}",
    "coloured": "\x1b[1;36m(Worker_TP3 pid=9)\x1b[0;0m {}",
    "docker": "vllm-1  | {}",
}


@pytest.mark.parametrize("way", PRINTED)
@pytest.mark.parametrize(("name", "line"), KNOWN, ids=NAMED)
def test_a_failure_is_known_however_it_is_printed(name, line, way):
    found = diagnoses.diagnose(f"INFO starting\n{PRINTED[way].format(line)}\n")
    assert found, line
    assert (found[0].rule.id, found[0].line) == (name, 2)


@pytest.mark.parametrize(("name", "line"), KNOWN, ids=NAMED)
def test_great_and_small_letters_are_alike(name, line):
    found = diagnoses.diagnose(line.lower())
    assert found and found[0].rule.id == name


@pytest.mark.parametrize("line", HEALTHY)
def test_a_healthy_line_says_nothing(line):
    assert diagnoses.diagnose(line) == []


def test_parts_that_do_not_fit_are_told_from_a_wrong_flag():
    call = "TypeError: AscendAttention.__init__() got an unexpected keyword argument 'sinks'"
    log = f'  File "/opt/vllm_ascend/attention/attention_v1.py", line 9, in build\n{call}\n'
    assert diagnoses.diagnose(log)[0].rule.id == "engine-call-mismatch"
    assert [one.rule.id for one in diagnoses.diagnose(f"{call}\n")] == ["program-exception"]
    flag = "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'swap_space'"
    assert diagnoses.diagnose(f"{flag}\n")[0].rule.id == "flag-unknown"
