"""Fetch a model from another server: the second half of a copy; `model_serve` on that server is the first.

Resumable as a download is. Each file is compared with the digest that the other server makes of it.
"""

from dataclasses import dataclass

from deployments.artifacts.paths import EXAMPLE, PATH, lock
from deployments.artifacts.there import THERE
from deployments.steps import Step, Text, param, python_module

TITLE = Text("从另一台服务器复制模型", "Copy a model from another server")
OWN_PAGE = True
ACTED = True
STEP_TIMEOUT_S = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Params:
    server: str = param("text", zh="来自服务器", en="From server", pattern="[a-z0-9][a-z0-9-]{0,62}")
    model: str = param("text", zh="那里的目录", en="Folder there", pattern=PATH, example=EXAMPLE)
    folder: str = param("new_folder", zh="写入", en="Written to", pattern=PATH, example=EXAMPLE)
    address: str = param("text", zh="地址", en="Address", pattern=r"[A-Za-z0-9.:_-]{1,253}")
    port: int = param("integer", zh="端口", en="Port", least=1, most=65535)
    pair: str = param("text", zh="复制编号", en="Number of the copy", pattern="[0-9a-f]{32}")
    at_once: int = param("integer", zh="同时复制的文件数", en="Files at once", default=4, least=1, most=16)


def locks(p: Params) -> list[str]:
    return [lock(p.folder)]


def steps(p: Params) -> list[Step]:
    host = f"[{p.address}]" if ":" in p.address else p.address
    argv = python_module(
        "deployments.agent.models.download", "--source=server", f"--endpoint=http://{host}:{p.port}",
        f"--model={p.model}", f"--pair={p.pair}", "--pickles", "--private", f"--at-once={p.at_once}", "--", p.folder,
    )  # fmt: skip
    title = Text(f"从 {p.server} 复制 {p.model}", f"Copy {p.model} from {p.server}")
    return [Step(title, argv, timeout_s=STEP_TIMEOUT_S, skips=(THERE,))]


def undo(p: Params) -> list[Step]:
    """Nothing here: models are deleted on their own page."""
    return []
