"""Take a stack's environment off a server. The console fills in its folder; who works with it keeps it there."""

from dataclasses import dataclass

from deployments.steps import Step, Text, param, python_module

TITLE = Text("卸载软件栈", "Uninstall a stack")
OWN_PAGE = True
CHANGES_FACTS = True
ACTED = True  # on simulated servers, and never run there
FILLED = ("folder",)  # by the console, when the job is queued
INTERRUPTS = Text(
    "这个软件栈的目录会被删除，不能恢复，只能重新安装；有进程在用它时作业会拒绝。驱动、固件与共享的 CANN 不受影响。",
    "The folder of this stack is deleted, for good: it can only be installed anew. The job refuses while a process "
    "uses it. Driver, firmware and a shared CANN stay as they are.",
)


@dataclass(frozen=True)
class Params:
    stack: str = param("text", zh="软件栈", en="Stack")
    folder: str = param(
        "text", zh="目录", en="Folder", default="", help=Text("由控制台填写。", "The console fills it in.")
    )


def locks(p: Params) -> list[str]:
    return ["stack"]


def steps(p: Params) -> list[Step]:
    argv = python_module("deployments.stacks.remove", p.folder)
    return [Step(Text(f"删除 {p.stack}", f"Delete {p.stack}"), argv, timeout_s=900.0)]


def undo(p: Params) -> list[Step]:
    """Nothing here: the kind `install` brings it back."""
    return []
