"""Install msModelSlim into the folder of the stack in use, in an environment of its own beside that which serves. The
console fills in the plan; what is there already is skipped."""

from dataclasses import dataclass

from deployments.stacks import frozen
from deployments.steps import Step, Text, param

locks, steps = frozen.locks, frozen.steps

TITLE = Text("安装 msModelSlim", "Install msModelSlim")
CHANGES_FACTS = True
ACTED = True  # on simulated servers, and never run there
FILLED = (*frozen.FILLED, "stack", "restart", "window")
INTERRUPTS = Text(
    "装在在用软件栈自己的目录里，与部署用的环境分开；正在运行的引擎不受影响。",
    "It goes into the folder of the stack in use, apart from the environment that serves; engines that run are not "
    "disturbed.",
)


@dataclass(frozen=True)
class Params(frozen.Planned):
    stack: str = param("text", zh="软件栈", en="Stack", default="", help=frozen.BY_CONSOLE)
    bundle: str = param("text", zh="离线包", en="Bundle", default="")
    wheelhouse: str = param("text", zh="wheel 目录", en="Folder of wheels", default="")
    index: str = param("text", zh="软件包索引", en="Index of packages", default="")
    extra_index: str = param("text", zh="其他索引", en="Further indexes", default="")
    python: str = param("text", zh="Python", en="Python", default="")


def undo(p: Params) -> list[Step]:
    """Nothing: it goes with its stack."""
    return []
