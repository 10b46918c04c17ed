"""Stop one engine of a deployment: first gently, then by force; done when its processes are gone and its NPUs have
their memory back. Where they have not, the job fails and names the reset that helps."""

from dataclasses import dataclass

from deployments.kinds import serve
from deployments.serving import asked
from deployments.serving.asked import Ask
from deployments.serving.faults import STOPPING as FAULTS
from deployments.steps import Step, Text, param, python_module

TITLE = Text("停止引擎", "Stop an engine")
OWN_PAGE = True
ACTED = True  # on simulated servers, and never run there
NEEDS_ROOT = True  # for a unit of systemd; the other routes need none
MOSTLY_WITHOUT = True
INTERRUPTS = Text(
    "正在处理的请求会被切断；先让网关不再发来请求，就不会有。",
    "Requests under way are cut off; there are none where the gateway has sent no more before.",
)
FILLED = ("deployment", "npus", "held", "device", "address", "port", "route", "family", "idle_mb", "drain_s")
STOP_S, IDLE_S = 300.0, 240.0


@dataclass(frozen=True)
class Params:
    replica: int = param("integer", zh="副本", en="Replica", least=1, most=2**31 - 1)
    now: bool = param(
        "flag", zh="立即", en="At once", default=False,
        help=Text("不等正在处理的请求结束。", "Do not wait for the requests under way."),
    )  # fmt: skip
    deployment: str = param("text", zh="部署", en="Deployment", default="", help=serve.BY_CONSOLE)
    npus: list[str] = param("npus", zh="NPU", en="NPUs", default=[], help=serve.BY_CONSOLE)
    held: list[str] = param("npus", zh="锁住的 NPU", en="NPUs that are held", default=[], help=serve.BY_CONSOLE)
    device: str = param("choice", zh="设备", en="Device", default="npu", choices=("npu", "cpu"), help=serve.BY_CONSOLE)
    address: str = param("text", zh="地址", en="Address", default="127.0.0.1", help=serve.BY_CONSOLE)
    port: int = param("integer", zh="端口", en="Port", default=0, least=0, most=65535, help=serve.BY_CONSOLE)
    route: str = param("choice", zh="方式", en="Route", default="process", choices=asked.ROUTES, help=serve.BY_CONSOLE)
    family: str = param("text", zh="芯片系列", en="Family of chips", default="", help=serve.BY_CONSOLE)
    idle_mb: int = param(
        "integer", zh="空闲显存 MB", en="Memory when idle, MB", default=0, least=0, help=serve.BY_CONSOLE
    )
    drain_s: int = param("integer", zh="排空秒数", en="Seconds to drain", default=0, least=0, help=serve.BY_CONSOLE)
    fault: str = param(
        "choice", zh="模拟故障", en="Simulate a fault", default="", choices=FAULTS,
        help=Text("只有模拟服务器才有。", "Only simulated servers have it."),
    )  # fmt: skip


def ask_of(p: Params) -> Ask:
    return Ask(
        p.replica, p.deployment, npus=tuple(p.npus), device=p.device, address=p.address, port=p.port, route=p.route,
        family=p.family, idle_mb=p.idle_mb,
    )  # fmt: skip


def locks(p: Params) -> list[str]:
    """The engine, and those of its NPUs that are not cordoned: a cordoned one must be given back, too."""
    return [f"engine:{p.replica}", *(f"npu:{name}" for name in p.held)]


def steps(p: Params) -> list[Step]:
    return stopping(ask_of(p), drain_s=0 if p.now else p.drain_s, remove=True)


def stopping(ask: Ask, *, drain_s: int, remove: bool) -> list[Step]:
    """Until its NPUs are idle. Requests under way get `drain_s` seconds; `remove` takes the unit away, too."""
    words = [*asked.words(ask), *([f"--drain={drain_s}"] if drain_s else [])]
    found = [
        Step(
            Text("停止引擎", "Stop the engine"),
            python_module(f"{serve.OWN}stop", *words),
            timeout_s=STOP_S + drain_s,
            skips=(serve.NOTHING,),
        ),
    ]
    if remove and ask.route == "systemd":
        title = Text("移除 systemd 单元", "Remove the unit of systemd")
        found.append(Step(title, ["engine-remove", ask.name], needs_root=True, always=True, timeout_s=serve.ROOT_S))
    title = Text("等待 NPU 显存回到空闲", "Wait until the NPUs have their memory back")
    argv = python_module(f"{serve.OWN}idle", *asked.words(ask))
    return [*found, Step(title, argv, timeout_s=IDLE_S, skips=(serve.NOTHING,))]


def undo(p: Params) -> list[Step]:
    """Nothing here: the kind `serve` starts it again."""
    return []
