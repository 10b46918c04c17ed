"""Change driver and firmware alone: a first install, an upgrade, a downgrade, or the same ones once more.

The console fills in the plan when the job is queued, so that what runs is what was shown. Starts in maintenance, too:
it is the way out where such a change has failed.
"""

from dataclasses import dataclass

from deployments.stacks import frozen
from deployments.stacks.options import RESTARTS
from deployments.steps import Step, Text, param

TITLE = Text("更换驱动与固件", "Change driver and firmware")
OWN_PAGE = True
CHANGES_FACTS = True
ACTED = True  # on simulated servers, and never run there
NEEDS_ROOT = True
FILLED = ("plan", "npus", "before")  # by the console, when the job is queued
INTERRUPTS = Text(
    "这台服务器上的 NPU 在重启之前都不可用；失败时服务器转入维护状态，没有自动的退路。",
    "No NPU of this server can be used until it was restarted. Where it fails the server goes into maintenance, and "
    "nothing goes back by itself.",
)


@dataclass(frozen=True)
class Params:
    driver: str = param("text", zh="驱动版本", en="Driver version", default="")
    firmware: str = param("text", zh="固件版本", en="Firmware version", default="")
    restart: str = param("choice", zh="重启", en="Restart", default="by_hand", choices=RESTARTS)
    window: str = param("text", zh="重启时间段", en="Time for the restart", default="")
    npus: list[str] = param(
        "texts", zh="NPU", en="NPUs", default=[], help=Text("由控制台填写。", "The console fills it in.")
    )
    before: str = param(
        "text",
        zh="之前的版本",
        en="Versions before",
        default="",
        help=Text("由控制台填写。", "The console fills it in."),
    )
    plan: str = param(
        "text", zh="计划", en="Plan", default="", most_characters=48 * 1024,
        help=Text("由控制台填写。", "The console fills it in."),
    )  # fmt: skip


def locks(p: Params) -> list[str]:
    return ["stack", *frozen.host_locks(steps(p), p.npus)]


def steps(p: Params) -> list[Step]:
    return frozen.read(p.plan)


def undo(p: Params) -> list[Step]:
    """Nothing here: another change goes back, with a plan and warnings of its own."""
    return []
