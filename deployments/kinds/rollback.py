"""Go back to the stack that was in use before, or to another that lies beside it. The console fills in its folder."""

from dataclasses import dataclass

from deployments.stacks import cann_layer
from deployments.steps import Evidence, Step, Text, param, python_module

TITLE = Text("换回之前的软件栈", "Go back to the stack before")
OWN_PAGE = True
CHANGES_FACTS = True
ACTED = True  # on simulated servers, and never run there
FILLED = ("folder",)  # by the console, when the job is queued
INTERRUPTS = Text(
    "之后启动的引擎使用换回的软件栈；正在运行的引擎不受影响。",
    "Engines that start from now on use that stack; those that run are not disturbed.",
)
TRY = "import sys, torch; print(sys.prefix, torch.__version__)"


@dataclass(frozen=True)
class Params:
    stack: str = param(
        "text", zh="软件栈", en="Stack", default="", help=Text("空为之前的软件栈。", "Empty: the one before.")
    )
    folder: str = param(
        "text", zh="目录", en="Folder", default="", help=Text("由控制台填写。", "The console fills it in.")
    )


def locks(p: Params) -> list[str]:
    return ["stack"]


def steps(p: Params) -> list[Step]:
    argv = list(cann_layer.with_env([f"{p.folder}/activate"], ["python", "-c", TRY]))
    return [
        Step(
            Text(f"试用 {p.stack}", f"Try {p.stack}"), argv, timeout_s=120.0, reads=Evidence(f"{p.folder}/activate", "")
        ),
        Step(
            Text(f"把 {p.stack} 设为在用的软件栈", f"Make {p.stack} the stack in use"),
            python_module("deployments.stacks.activate", "use", p.folder),
            timeout_s=60.0,
        ),
    ]


def undo(p: Params) -> list[Step]:
    """Nothing here: another rollback goes forward again, for the stack left is now the one before."""
    return []
