"""Change driver and firmware alone: a first install, an upgrade, a downgrade, or the same ones once more.

The console fills in the plan when the job is queued, so that what runs is what was shown. Starts in maintenance, too:
it is the way out where such a change has failed.
"""

from dataclasses import dataclass

from deployments.stacks import frozen
from deployments.steps import Step, Text, param

locks, steps = frozen.locks, frozen.steps

TITLE = Text("更换驱动与固件", "Change driver and firmware")
OWN_PAGE = True
CHANGES_FACTS = True
ACTED = True  # on simulated servers, and never run there
NEEDS_ROOT = True
FILLED = frozen.FILLED
INTERRUPTS = Text(
    "这台服务器上的 NPU 在重启之前都不可用；失败时服务器转入维护状态，没有自动的退路。",
    "No NPU of this server can be used until it was restarted. Where it fails the server goes into maintenance, and "
    "nothing goes back by itself.",
)


@dataclass(frozen=True)
class Params(frozen.Planned):
    driver: str = param("text", zh="驱动版本", en="Driver version", default="")
    firmware: str = param("text", zh="固件版本", en="Firmware version", default="")


def undo(p: Params) -> list[Step]:
    """Nothing here: another change goes back, with a plan and warnings of its own."""
    return []
