"""End a gateway on a server: requests that run have 20 s. Its usage is kept there until the console has counted it."""

from dataclasses import dataclass

from deployments.steps import Step, Text, param, python_module

TITLE = Text("停止网关", "Stop a gateway")
OWN_PAGE = True
INTERRUPTS = Text(
    "网关地址不再应答；引擎继续运行。",
    "The gateway's address answers no more; engines go on.",
)


@dataclass(frozen=True)
class Params:
    gateway: int = param("integer", zh="网关编号", en="Number of the gateway", least=1, most=2**53)
    deployment: str = param("text", zh="部署", en="Deployment", pattern=r"[-a-zA-Z0-9_]{1,63}")


def locks(p: Params) -> list[str]:
    return [f"gateway:{p.gateway}"]


def steps(p: Params) -> list[Step]:
    argv = python_module("deployments.agent.gateways.making", "stop", str(p.gateway))
    title = Text(f"停止 {p.deployment} 的网关", f"Stop the gateway of {p.deployment}")
    return [Step(title, argv, timeout_s=120, to_its_end=True)]


def undo(p: Params) -> list[Step]:
    """Nothing here: the kind `gateway` starts it again."""
    return []
