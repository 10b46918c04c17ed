"""Tell what a download would fetch to this server: files, size, free room, addresses. It reads and changes nothing."""

from deployments.kinds import download
from deployments.steps import Step, Text, python_module

TITLE = Text("查看要下载的内容", "Look what a download would fetch")
OWN_PAGE = True
ACTED = True
FILLED = download.FILLED
STEP_TIMEOUT_S = 900.0
Params = download.Params


def locks(p: download.Params) -> list[str]:
    """Nothing: it only reads."""
    return []


def steps(p: download.Params) -> list[Step]:
    argv = python_module("deployments.agent.models.download", "--look", *download.arguments(p))
    return [Step(Text(f"查看 {p.model}", f"Look at {p.model}"), argv, timeout_s=STEP_TIMEOUT_S)]


def undo(p: download.Params) -> list[Step]:
    """Nothing: it only reads."""
    return []
