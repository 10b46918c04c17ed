"""A kind for tests of locks: it holds what it is told to, and runs one Python program."""

import sys
from dataclasses import dataclass

from deployments.steps import Step, Text, param

TITLE = Text("占用", "Hold")


@dataclass(frozen=True)
class Params:
    locks: list[str] = param("texts", zh="锁", en="Locks", default=[])
    program: str = param("text", zh="程序", en="Program", default="pass")


def locks(p):
    return p.locks


def steps(p):
    return [Step(Text("占用", "Hold"), [sys.executable, "-c", p.program])]


def undo(p):
    return []
