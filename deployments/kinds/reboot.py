"""Restart a server: look who uses it, restart it, and wait until its NPUs answer again.

It refuses while processes hold NPUs or other jobs run there, and where that cannot be read, unless `force` is given.
"""

from dataclasses import dataclass, replace

from deployments.steps import ATTEMPT, Step, Text, param, python_module

TITLE = Text("重启服务器", "Restart the server")
NEEDS_ROOT = True
INTERRUPTS = Text(
    "重启会结束这台服务器上的全部进程：推理服务、其他作业、别人的程序。通常 8 到 15 分钟后恢复。",
    "A restart ends every process on the server: engines, other jobs, programs of others. "
    "It is mostly back after 8 to 15 minutes.",
)
LOOK = "deployments.kinds.reboot_look"
ANSWER_S = 900  # the driver brings up one NPU after the other


@dataclass(frozen=True)
class Params:
    force: bool = param(
        "flag",
        zh="有进程占用也重启",
        en="Restart although it is in use",
        default=False,
        help=Text(
            "不勾选时，若有进程占用 NPU、有其他作业在运行，或无法得知，作业会拒绝重启。",
            "Without it the job refuses while processes hold NPUs or other jobs run, or where that cannot be known.",
        ),
    )
    by_hand: bool = param(
        "flag",
        zh="由人工重启",
        en="Somebody restarts it by hand",
        default=False,
        help=Text(
            "作业只等待：请自行重启（命令或 BMC），回来后作业继续。不需要 root 助手。",
            "The job only waits: restart the server yourself, by its command or its BMC. It needs no root helper.",
        ),
    )
    minutes: int = param("integer", zh="最多等待（分钟）", en="Wait at most (minutes)", default=30, least=5, most=240)


def locks(p: Params) -> list[str]:
    return ["server"]


def steps(p: Params) -> list[Step]:
    force = ["--force"] if p.force else []
    restart = (
        Step(Text("等待人工重启", "Wait until somebody restarts it"), [])
        if p.by_hand
        else Step(Text("重启", "Restart"), ["reboot", ATTEMPT], needs_root=True, timeout_s=120.0)
    )
    return [
        Step(Text("查看谁在使用", "Look who uses it"), python_module(LOOK, "before", *force), timeout_s=120.0),
        replace(restart, reboot=True, reboot_s=p.minutes * 60.0),
        Step(
            Text("等待 NPU 恢复", "Wait until the NPUs answer"),
            python_module(LOOK, "after", "--patience", str(ANSWER_S)),
            timeout_s=ANSWER_S + 120.0,
        ),
    ]


def undo(p: Params) -> list[Step]:
    """Nothing: what a restart has ended does not come back by another one."""
    return []
