"""Start one engine of a deployment on this server, and wait until it has answered once.

The console fills everything in from the replica's row, so that nobody starts an engine beside what it knows. The
engine is kept by a program of its own (`agent/engines/keeper.py`) and outlives the job; where the job fails or is
cancelled before the engine has answered, the engine is stopped, and its folder with the log stays.
"""

from dataclasses import dataclass

from deployments.artifacts.paths import EXAMPLE, PATH
from deployments.serving import asked, unit
from deployments.serving.asked import ROUTES, WHY_PROCESS, Ask
from deployments.serving.faults import STARTING as FAULTS
from deployments.steps import Step, Text, param, python_module

TITLE = Text("启动引擎", "Start an engine")
OWN_PAGE = True
ACTED = True  # on simulated servers, and never run there
NEEDS_ROOT = True  # for a unit of systemd; the other routes need none
MOSTLY_WITHOUT = True
OWN = "deployments.agent.serving."
LOOK_S, PUT_S, START_S, ROOT_S, ONE_S, SETTLE_S = 900.0, 120.0, 120.0, 180.0, 330.0, 300.0
MARGIN_S = 120.0  # its own time limit ends the wait first, with a sentence
NOTHING = 3
BY_CONSOLE = Text("由控制台填写。", "The console fills it in.")
FILLED = (
    "deployment", "revision", "model", "fingerprint", "npus", "device", "address", "port", "settings", "sealed",
    "stacks", "route", "why", "family", "idle_mb", "rank", "addresses", "interface", "ports",
    "peers",
)  # fmt: skip


@dataclass(frozen=True)
class Params:
    replica: int = param("integer", zh="副本", en="Replica", least=1, most=2**31 - 1)
    deployment: str = param(
        "text", zh="部署", en="Deployment", default="", pattern=r"[-A-Za-z0-9_]{0,63}", help=BY_CONSOLE
    )
    revision: int = param("integer", zh="版本", en="Revision", default=0, least=0, help=BY_CONSOLE)
    model: str = param(
        "artifact", zh="模型", en="Model", default="", pattern=rf"|{PATH}", example=EXAMPLE, help=BY_CONSOLE
    )
    fingerprint: str = param(
        "text", zh="内容指纹", en="Fingerprint", default="", pattern=r"[0-9a-f]{0,64}", help=BY_CONSOLE
    )
    npus: list[str] = param("npus", zh="NPU", en="NPUs", default=[], help=BY_CONSOLE)
    device: str = param("choice", zh="设备", en="Device", default="npu", choices=("npu", "cpu"), help=BY_CONSOLE)
    address: str = param(
        "text", zh="地址", en="Address", default="127.0.0.1", pattern=r"[A-Za-z0-9.:%_-]{1,255}", help=BY_CONSOLE
    )
    port: int = param("integer", zh="端口", en="Port", default=0, least=0, most=65535, help=BY_CONSOLE)
    settings: str = param("text", zh="设置", en="Settings", default="", most_characters=40_000, help=BY_CONSOLE)
    sealed: str = param(
        "text", zh="封好的密钥", en="Sealed key", default="", pattern=r"[A-Za-z0-9+/=]{0,4000}", help=BY_CONSOLE
    )
    stacks: str = param("text", zh="软件栈目录", en="Folder of the stacks", default="", help=BY_CONSOLE)
    route: str = param("choice", zh="方式", en="Route", default="process", choices=ROUTES, help=BY_CONSOLE)
    why: str = param(
        "choice", zh="为何不用 systemd", en="Why not systemd", default="", choices=WHY_PROCESS, help=BY_CONSOLE
    )
    family: str = param("text", zh="芯片系列", en="Family of chips", default="", most_characters=40, help=BY_CONSOLE)
    idle_mb: int = param("integer", zh="空闲显存 MB", en="Memory when idle, MB", default=0, least=0, help=BY_CONSOLE)
    rank: int = param("integer", zh="节点序号", en="Rank of the node", default=0, least=0, most=255, help=BY_CONSOLE)
    addresses: list[str] = param("texts", zh="节点地址", en="Addresses of the nodes", default=[], help=BY_CONSOLE)
    interface: str = param(
        "text", zh="网络接口", en="Network interface", default="", pattern=r"[A-Za-z0-9._-]{0,31}", help=BY_CONSOLE
    )
    ports: list[str] = param("texts", zh="其他端口", en="Further ports", default=[], help=BY_CONSOLE)
    peers: list[str] = param(
        "texts", zh="其他节点 NPU 的地址", en="Addresses of the other nodes' NPUs", default=[], help=BY_CONSOLE
    )
    fault: str = param(
        "choice", zh="模拟故障", en="Simulate a fault", default="", choices=FAULTS,
        help=Text("只有模拟服务器才有。", "Only simulated servers have it."),
    )  # fmt: skip


def ask_of(p: Params) -> Ask:
    pairs = (one.partition(":") for one in p.ports)
    ports = {name: int(port) for name, _colon, port in pairs if port.isdecimal()}
    return Ask(
        p.replica, p.deployment, p.revision, p.model, p.fingerprint, tuple(p.npus), p.device, p.address, p.port,
        p.route, p.why, p.stacks, p.family, p.idle_mb, p.rank, tuple(p.addresses), p.interface, ports,
        asked.settings_of(p.settings), p.sealed, tuple(p.peers),
    )  # fmt: skip


def locks(p: Params) -> list[str]:
    """The engine itself, and its NPUs while it starts."""
    return [f"engine:{p.replica}", *(f"npu:{name}" for name in p.npus)]


def steps(p: Params) -> list[Step]:
    ask = ask_of(p)
    tail = [_program(ask, "settle", SETTLE_STOP, SETTLE_S, always=True, skips=(NOTHING,))]
    if p.route == "systemd":
        words = Text("移除没有在运行的单元", "Remove the unit where it does not run")
        tail.append(Step(words, ["engine-tidy", ask.name], needs_root=True, always=True, timeout_s=ROOT_S))
    return [*starting(ask), *tail]


SETTLE_STOP = Text("没有就绪时停止引擎", "Stop the engine where it is not ready")


def starting(ask: Ask) -> list[Step]:
    """From the look to the first answer."""
    begun = [
        _program(ask, "look", Text("查看模型、端口、NPU 与软件栈", "Look at model, port, NPUs and stack"), LOOK_S),
        _program(ask, "put", Text("写下引擎的规格", "Write down what the engine is"), PUT_S),
    ]
    if ask.route == "systemd":
        argv = ["engine-unit", ask.name, unit.mounted(ask.model)]
        begun.append(
            Step(Text("放置 systemd 单元", "Put the unit of systemd"), argv, needs_root=True, timeout_s=ROOT_S)
        )
    begun.append(_program(ask, "start", Text("启动引擎", "Start the engine"), START_S))
    if ask.route == "systemd":
        start = ["engine-start", ask.name]
        begun.append(Step(Text("启动单元", "Start the unit"), start, needs_root=True, timeout_s=ROOT_S))
    return [
        *begun,
        _program(ask, "await_ready", Text("等待就绪", "Wait until it is ready"), ask.ready_s + MARGIN_S),
        _program(ask, "try_one", Text("请它回答一次", "Have it answer once"), ONE_S, skips=(NOTHING,)),
    ]


def _program(ask: Ask, name: str, title: Text, timeout_s: float, **more: object) -> Step:
    argv = python_module(f"{OWN}{name}", *asked.words(ask))
    return Step(title, argv, env=asked.environment(ask), timeout_s=timeout_s, **more)  # type: ignore[arg-type]


def undo(p: Params) -> list[Step]:
    """Nothing here: the kind `stop` takes it back."""
    return []
