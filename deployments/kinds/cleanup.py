"""Clean up a server: logs, old environments, images, half downloads and old spools that somebody has ticked.

A target is `category:path` as the kind `cleanup_look` told it. The server looks again before it removes: what is in use
by then, was changed since, is a link or was never found stays, and its item says why.
"""

from dataclasses import dataclass

from deployments.artifacts.paths import lock
from deployments.artifacts.target import whole_of
from deployments.steps import Step, Text, param, python_module

TITLE = Text("清理", "Clean up")
OWN_PAGE = True
CHANGES_FACTS = True  # which stacks lie there
INTERRUPTS = Text(
    "勾选的内容会被删除，不能恢复。正在使用的、查看之后有改动的、属于别的账号的会留下，并说明原因。",
    "What was ticked is deleted, for good. What is in use, has changed since it was shown or belongs to another "
    "account stays, and is told with the reason.",
)
CATEGORIES: dict[str, Text] = {
    "plog": Text("CANN 日志（plog）", "Logs of CANN (plog)"),
    "logs": Text("引擎日志", "Logs of engines"),
    "stacks": Text("旧环境", "Old environments"),
    "images": Text("未使用的镜像", "Images that nothing uses"),
    "downloads": Text("未完成的下载", "Half downloads"),
    "spools": Text("旧作业的日志（控制台没有收到）", "Old jobs' lines that the console never took"),
}
STEP_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class Params:
    targets: list[str] = param(
        "texts",
        zh="要删除的内容",
        en="What to delete",
        help=Text("类别:路径，取自查看的报告。", "category:path, as a look has reported them."),
    )
    seen: int = param(
        "integer",
        zh="查看的时刻",
        en="When it was looked at",
        default=0,
        least=0,
        help=Text("epoch 秒；之后有改动的会留下。0：现在。", "Epoch seconds; what changed later stays. 0: now."),
    )


def category_of(target: str) -> str:
    return target.partition(":")[0]


def locks(p: Params) -> list[str]:
    """What an installation fetches and makes is held like it holds it: an image is used only a step after it came.

    So is the half of a model by the name that it will have: a job may work for hours without writing into it.
    """
    fetched = {"stacks", "downloads", "images"}
    halves = {whole_of(path) for category, _colon, path in (name.partition(":") for name in p.targets)
              if category == "downloads"} - {""}  # fmt: skip
    held = "stack" if fetched & {category_of(name) for name in p.targets} else "cleanup"
    return [held, *sorted(map(lock, halves))]


def steps(p: Params) -> list[Step]:
    names = list(dict.fromkeys(p.targets))
    argv = python_module("deployments.agent.cleanup", "--seen", str(p.seen), "remove", "--", *names)
    return [
        Step(Text(f"删除 {len(names)} 项", f"Delete what was ticked ({len(names)})"), argv, timeout_s=STEP_TIMEOUT_S)
    ]


def undo(p: Params) -> list[Step]:
    """Nothing: what is deleted does not come back."""
    return []
