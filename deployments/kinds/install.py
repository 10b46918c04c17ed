"""Bring a server to a stack. The console fills in the plan when the job is queued, so that what runs is what was shown.

The environment goes into the stack's own folder beside older ones; the stack in use changes with the last step, in one
move, so that a failure before leaves the one before in use. What the plan found satisfied is looked at again just
before and skipped. Driver, firmware and a shared CANN are changed by root, through the agent's root helper. Simulated
servers act out all of it, and a fault where the operator asks for one.
"""

from dataclasses import dataclass

from deployments.stacks import frozen
from deployments.stacks.faults import CHOICES
from deployments.stacks.options import CANN_PLACES, LAYERINGS, ROUTES
from deployments.steps import Step, Text, param

locks, steps = frozen.locks, frozen.steps

TITLE = Text("安装软件栈", "Install a stack")
OWN_PAGE = True
CHANGES_FACTS = True
ACTED = True  # on simulated servers, and never run there
NEEDS_ROOT = True  # for driver, firmware and a shared CANN; the environment needs none
MOSTLY_WITHOUT = True
FILLED = frozen.FILLED
INTERRUPTS = Text(
    "新环境装在旧环境旁边，正在运行的引擎不受影响；最后一步才把它设为在用的软件栈。",
    "The new environment goes beside the older ones and disturbs no engine that runs; the last step makes it the stack "
    "in use.",
)


@dataclass(frozen=True)
class Params(frozen.Planned):
    stack: str = param("text", zh="软件栈", en="Stack", pattern=r"[a-z0-9][a-z0-9._-]{0,62}", example="cpu-0.32.0")
    route: str = param("choice", zh="方式", en="Route", default="auto", choices=ROUTES)
    cann: str = param("choice", zh="CANN 的位置", en="Where CANN goes", default="own", choices=CANN_PLACES)
    layering: str = param("choice", zh="vLLM 的来源", en="How vLLM comes", default="empty", choices=LAYERINGS)
    packages: str = param("text", zh="安装包目录", en="Folder of packages", default="")
    bundle: str = param(
        "text", zh="离线包", en="Bundle", default="",
        help=Text("名称见 manage.py bundle list", "Its name: manage.py bundle list"),
    )  # fmt: skip
    wheelhouse: str = param("text", zh="wheel 目录", en="Folder of wheels", default="")
    index: str = param("text", zh="软件包索引", en="Index of packages", default="")
    extra_index: str = param("text", zh="其他索引", en="Further indexes", default="")
    registry: str = param("text", zh="镜像仓库", en="Registry of images", default="")
    image_archive: str = param("text", zh="镜像归档", en="Archive of the image", default="")
    python: str = param("text", zh="Python", en="Python", default="")
    driver: str = param("text", zh="驱动版本", en="Driver version", default="")
    firmware: str = param("text", zh="固件版本", en="Firmware version", default="")
    smoke_model: str = param("text", zh="试用模型的目录", en="Folder of a model to try it with", default="")
    fault: str = param(
        "choice", zh="模拟故障", en="Simulate a fault", default="", choices=CHOICES,
        help=Text("只有模拟服务器才有。", "Only simulated servers have it."),
    )  # fmt: skip


def undo(p: Params) -> list[Step]:
    """Nothing here: the kinds `rollback` and `uninstall` go back."""
    return []
