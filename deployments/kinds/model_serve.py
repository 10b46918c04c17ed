"""Let one other server fetch one model from here: the first half of a copy from server to server.

It listens on a port for as long as this job runs, answers only requests that the other half has signed with this copy's
own key, and reads that one folder alone. What it sends is not hidden from the network, but cannot be changed there.
"""

from dataclasses import dataclass

from deployments.artifacts.paths import EXAMPLE, PATH
from deployments.steps import Step, Text, param, python_module

TITLE = Text("提供模型给另一台服务器", "Hand a model to another server")
OWN_PAGE = True
ACTED = True
STEP_TIMEOUT_S = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Params:
    model: str = param("text", zh="模型目录", en="Folder of the model", pattern=PATH, example=EXAMPLE)
    pair: str = param("text", zh="复制编号", en="Number of the copy", pattern="[0-9a-f]{32}")
    port: int = param("integer", zh="端口", en="Port", least=1, most=65535)


def locks(p: Params) -> list[str]:
    """The port alone: a model is only read."""
    return [f"port:{p.port}"]


def steps(p: Params) -> list[Step]:
    argv = python_module("deployments.agent.models.serving", p.model, str(p.port), p.pair)
    return [Step(Text(f"提供 {p.model}", f"Hand out {p.model}"), argv, timeout_s=STEP_TIMEOUT_S)]


def undo(p: Params) -> list[Step]:
    """Nothing: it only reads."""
    return []
