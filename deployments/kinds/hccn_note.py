"""Take /etc/hccn.conf as it is now: later checks compare the file with this."""

from dataclasses import dataclass

from deployments.steps import Step, Text, python_module

TITLE = Text("以现在的 hccn.conf 为准", "Take hccn.conf as it is now")


@dataclass(frozen=True)
class Params:
    pass


def locks(p: Params) -> list[str]:
    """Nothing: the agent's own note is all that changes."""
    return []


def steps(p: Params) -> list[Step]:
    argv = python_module("deployments.kinds.check_probes.hccn")
    return [Step(Text("记下 /etc/hccn.conf", "Note /etc/hccn.conf"), argv, timeout_s=60.0)]


def undo(p: Params) -> list[Step]:
    """Nothing: what was noted before is not kept."""
    return []
