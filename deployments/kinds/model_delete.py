"""Delete one copy of a model. The console knows which content is meant, the server reads the folder again and refuses
where another one lies there by now, where anything else is in it, and where a process uses it."""

from dataclasses import dataclass

from deployments.artifacts.paths import EXAMPLE, PATH, lock
from deployments.steps import Step, Text, param, python_module

TITLE = Text("删除模型", "Delete a model")
OWN_PAGE = True
ACTED = True
FILLED = ("fingerprint",)  # services/model_delete.py: only a place that is known
TYPED = ("confirm",)
INTERRUPTS = Text(
    "这一份模型的全部文件会被删除，不能恢复。正在使用的、内容已经改变的会留下，并说明原因。",
    "All files of this copy are deleted, for good. What is in use or has another content by now stays, and is told "
    "with the reason.",
)
STEP_TIMEOUT_S = 2 * 3600.0  # thousands of files on a slow storage


@dataclass(frozen=True)
class Params:
    path: str = param("artifact", zh="模型", en="Model", pattern=PATH, example=EXAMPLE)
    confirm: str = param(
        "text",
        zh="确认",
        en="Confirm",
        default="",
        most_characters=200,
        help=Text(
            "最后一份时须写出模型的名字。",
            "The model's name, where this is its last copy.",
        ),
    )
    fingerprint: str = param("text", zh="内容", en="Content", default="", pattern="[0-9a-f]{64}|")


def locks(p: Params) -> list[str]:
    return [lock(p.path)]


def steps(p: Params) -> list[Step]:
    title = Text(f"删除 {p.path}", f"Delete {p.path}")
    argv = python_module("deployments.artifacts.remove", p.path, p.fingerprint)
    return [Step(title, argv, timeout_s=STEP_TIMEOUT_S, to_its_end=True)]


def undo(p: Params) -> list[Step]:
    """Nothing: what is deleted does not come back."""
    return []
