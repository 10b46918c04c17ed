"""Look what can be cleaned up on a server, with sizes and last use: it reads and changes nothing.

Its report is what the page of a clean-up takes its ticks from. Each item that may go names the job that removes it.
"""

from dataclasses import dataclass

from deployments.steps import Step, Text, python_module

TITLE = Text("查看可清理的内容", "Look what can be cleaned up")
OWN_PAGE = True
STEP_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Params:
    pass


def locks(p: Params) -> list[str]:
    """Nothing: it may run beside any other job."""
    return []


def steps(p: Params) -> list[Step]:
    argv = python_module("deployments.agent.cleanup", "look")
    return [Step(Text("查看大小与最近使用", "Look at sizes and last use"), argv, timeout_s=STEP_TIMEOUT_S)]


def undo(p: Params) -> list[Step]:
    """Nothing: a look changes nothing."""
    return []
