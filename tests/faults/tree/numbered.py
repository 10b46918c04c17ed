"""A kind for the fault tests: each step prints numbered lines, and notes outside the agent that it began and ended."""

from dataclasses import dataclass

from deployments.steps import Step, Text, param, python_module

TITLE = Text("编号行", "Numbered lines")


@dataclass(frozen=True)
class Params:
    notes: str = param("text", zh="记录文件", en="File of notes")
    lines: int = param("integer", zh="每步行数", en="Lines a step", default=100)
    pause_s: float = param("number", zh="每行间隔", en="Pause a line", default=0.001)
    count: int = param("integer", zh="步数", en="Steps", default=2)
    locks: list[str] = param("texts", zh="锁", en="Locks", default=[])


def locks(p):
    return p.locks


def steps(p):
    return [
        Step(
            Text(f"第 {n} 步", f"Step {n}"),
            python_module("deployments.kinds.numbered_lines", str(n), str(p.lines), str(p.pause_s), p.notes),
            timeout_s=600,
        )
        for n in range(1, p.count + 1)
    ]


def undo(p):
    return []
