"""Put the gateway of a deployment on a server: the router into an environment of its own, then nginx before it.

The console queues it and fills it in; what changes later, keys and engines, goes by an order and takes no job.
"""

from dataclasses import dataclass

from deployments.steps import Step, Text, param, python_module

TITLE = Text("设置网关", "Set up a gateway")
OWN_PAGE = True
INTERRUPTS = Text(
    "正在运行的引擎不受影响。已有的网关继续应答，直到新设置生效。",
    "Engines that run are not disturbed. A gateway that is there answers on until the new settings are in force.",
)
URLS = r"(https?://[^\s]{1,500})?"


@dataclass(frozen=True)
class Params:
    gateway: int = param("integer", zh="网关编号", en="Number of the gateway", least=1, most=2**53)
    deployment: str = param("text", zh="部署", en="Deployment", pattern=r"[-a-zA-Z0-9_]{1,63}")
    port: int = param("integer", zh="端口", en="Port", least=1, most=65535)
    router_port: int = param("integer", zh="路由端口", en="Port of the router", least=1, most=65535)
    version: int = param("integer", zh="版本", en="Version", least=1, most=2**53)
    sealed: str = param(
        "text", zh="密封的设置", en="Sealed settings", pattern=r"[A-Za-z0-9+/=]{1,60000}", most_characters=60000
    )
    alone: bool = param("flag", zh="只用路由（没有 nginx）", en="The router alone, without nginx", default=False)
    wheelhouse: str = param(
        "text", zh="wheel 目录", en="Folder of wheels", default="", pattern=r"(/[^\x00-\x1f]{1,500})?"
    )
    index: str = param("text", zh="软件包索引", en="Index of packages", default="", pattern=URLS)
    extra_index: str = param("text", zh="其他索引", en="Further indexes", default="")
    private: bool = param("flag", zh="用本站的登录", en="With this site's logins", default=False)


def locks(p: Params) -> list[str]:
    return [f"gateway:{p.gateway}", "gateway-router"]  # the environment of the router is shared


def steps(p: Params) -> list[Step]:
    program, name = "deployments.agent.gateways.making", str(p.gateway)
    alone = ["--alone"] if p.alone else []
    ports = [f"--port={p.port}", f"--router-port={p.router_port}"]
    where = [f"--index={p.index}"] if p.index else []
    where += [f"--extra-index={one}" for one in p.extra_index.split()]
    where += [f"--wheelhouse={p.wheelhouse}"] if p.wheelhouse else []
    where += ["--private"] if p.private else []
    return [
        Step(
            Text("查看 nginx 与端口", "Look for nginx and at the ports"),
            python_module(program, "look", name, *alone, *ports),
            timeout_s=60,
        ),
        Step(
            Text("安装 vllm-router", "Install vllm-router"),
            python_module(program, "router", *where),
            timeout_s=1800,
            skips=(3,),
        ),
        Step(
            Text(f"启动 {p.deployment} 的网关", f"Start the gateway of {p.deployment}"),
            python_module(program, "put", name, p.sealed, *alone),
            timeout_s=60,
        ),
        Step(
            Text("等待应答", "Wait until it answers"),
            python_module(program, "ready", name, str(p.version)),
            timeout_s=120,
        ),
    ]


def undo(p: Params) -> list[Step]:
    """Nothing here: the kind `gateway_stop` ends it."""
    return []
