"""A kind for tests of restarts: programs before, a restart by a program, by root or by hand, programs after."""

import sys
from dataclasses import dataclass

from deployments.steps import ATTEMPT, Step, Text, param

TITLE = Text("试重启", "Try a restart")
NEEDS_ROOT = True


@dataclass(frozen=True)
class Params:
    before: list[str] = param("texts", zh="之前", en="Before", default=[])
    by: str = param("text", zh="重启程序", en="Restarted by", default="")  # a program, "root", or nothing: by hand
    after: list[str] = param("texts", zh="之后", en="After", default=[])
    times: int = param("integer", zh="次数", en="Times", default=1)
    reboot_s: float = param("number", zh="时限", en="Within", default=1800.0)


def locks(p):
    return ["server"]


def steps(p):
    argv = {"": [], "root": ["reboot", ATTEMPT]}.get(p.by, [sys.executable, "-c", p.by])
    restart = Step(Text("重启", "Restart"), argv, needs_root=p.by == "root", reboot=True, reboot_s=p.reboot_s)
    return [*map(_run, p.before), *[restart] * p.times, *map(_run, p.after)]


def _run(program):
    return Step(Text("程序", "Program"), [sys.executable, "-c", program])


def undo(p):
    return []
