"""A kind for tests of the agent: each step is a Python program given as text."""

import sys
from dataclasses import dataclass

from deployments.steps import Step, Text, param

TITLE = Text("试验", "Try")


@dataclass(frozen=True)
class Params:
    programs: list[str] = param("texts", zh="程序", en="Programs")
    timeout_s: float = param("number", zh="时限", en="Timeout", default=60.0)
    may_fail: bool = param("flag", zh="可失败", en="May fail", default=False)
    npus: list[str] = param("npus", zh="NPU", en="NPUs", default=[])


def locks(p):
    return []


def steps(p):
    return [
        Step(Text(f"程序 {n}", f"Program {n}"), _argv(text), timeout_s=p.timeout_s, may_fail=p.may_fail, npus=p.npus)
        for n, text in enumerate(p.programs, start=1)
    ]


def _argv(text):
    return text.split()[1:] if text.startswith("argv ") else [sys.executable, "-c", text]
