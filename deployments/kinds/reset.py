"""Reset an NPU, and with it every NPU of the same HCCS ring. Nobody may hold one of them.

The tool asks Y/N; the root helper answers. What belongs to the ring is the console's to say: it knows the topology.
"""

from dataclasses import dataclass

from deployments.stacks.heard import REFUSED
from deployments.steps import Step, Text, param, python_module

TITLE = Text("复位 NPU", "Reset NPUs")
NEEDS_ROOT = True
ROLE = "administrator"
NEEDS_APPROVAL = True  # by another administrator: it takes NPUs from others
TYPED = ("confirm",)  # by hand each time: another job of the same kind is not filled in with it
FILLED = ("npu_id", "ring", "places", "devices")  # by the console, when the job is queued
INTERRUPTS = Text(
    "同一 HCCS 环上的全部 NPU 会一起复位，其中任何一个被占用时作业拒绝；复位期间它们都不可用，个别机型会因此需要重启。",
    "Every NPU of the same HCCS ring is reset together, and the job refuses while one of them is held. None of them "
    "can be used meanwhile; some machines need a restart afterwards.",
)
LOOK = "deployments.kinds.reboot_look"
ANSWER_S = 600
SETTLE_S = 20  # the vendor's manual: so long nothing is to be asked of it
BY_CONSOLE = Text("由控制台填写。", "The console fills it in.")


@dataclass(frozen=True)
class Params:
    npu: str = param(
        "text", zh="NPU 的 bus id", en="Bus id of the NPU",
        pattern=r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]", example="0000:C1:00.0",
        help=Text("如服务器页面所示，例如 0000:C1:00.0。", "As the server's page shows it, such as 0000:C1:00.0."),
    )  # fmt: skip
    confirm: str = param(
        "text", zh="再次输入服务器名以确认", en="The server's name once more, to confirm",
    )  # fmt: skip
    npu_id: int = param("integer", zh="NPU ID", en="NPU ID", default=0, least=0, most=255, help=BY_CONSOLE)
    ring: list[str] = param(
        "texts", zh="一起复位的 NPU", en="NPUs that are reset together", default=[], help=BY_CONSOLE
    )
    places: list[str] = param("texts", zh="位置", en="Places", default=[], help=BY_CONSOLE)
    devices: str = param(
        "text", zh="设备号", en="Devices", default="0", pattern=r"[0-9]{1,3}(,[0-9]{1,3}){0,127}", help=BY_CONSOLE
    )


def locks(p: Params) -> list[str]:
    """The server beside the NPUs: nobody holds those that are cordoned, and no driver may change under them."""
    return ["server", *(f"npu:{name}" for name in p.ring)]


def steps(p: Params) -> list[Step]:
    names = "、".join(p.places), ", ".join(p.places)
    return [
        Step(Text("记下现有的 NPU", "Note the NPUs that are there"), python_module(LOOK, "note"), timeout_s=120.0),
        Step(
            Text("确认没有人使用这些 NPU", "See that nobody holds one of these NPUs"),
            python_module("deployments.agent.holders", "--devices", p.devices, "--places", ",".join(p.places)),
            timeout_s=300.0,
        ),
        Step(
            Text(f"复位 NPU {p.npu_id}（一起：{names[0]}）", f"Reset NPU {p.npu_id} (together: {names[1]})"),
            ["npu-reset", str(p.npu_id), p.devices],
            needs_root=True, to_its_end=True, timeout_s=900.0, means=REFUSED, unattended=False,
            says=(r"reset (card|chip|npu|device) success", r"status\s*:\s*ok"),
        ),
        Step(
            Text("启动停下的导出器", "Start the exporters that were stopped"), ["start-exporters"],
            needs_root=True, always=True, timeout_s=300.0,
        ),
        Step(
            Text("等待 NPU 恢复", "Wait until the NPUs answer"),
            python_module(LOOK, "after", "--settle", str(SETTLE_S), "--patience", str(ANSWER_S)),
            timeout_s=ANSWER_S + SETTLE_S + 120.0,
        ),
    ]  # fmt: skip


def undo(p: Params) -> list[Step]:
    """Nothing: a reset leaves nothing that could be taken back."""
    return []
