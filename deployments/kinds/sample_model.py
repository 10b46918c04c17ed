"""Write a small random model, so that the whole way can be tried without a download: serve, quantize, evaluate.

What it answers is nonsense. With 28 layers msModelSlim takes it by its recipe of Qwen2.5-7B-Instruct.
"""

from dataclasses import dataclass

from deployments.artifacts.paths import EXAMPLE, PATH, lock
from deployments.artifacts.sample import KINDS, LAYERS
from deployments.artifacts.there import THERE
from deployments.steps import Step, Text, param, python_module

TITLE = Text("生成示例模型", "Make a sample model")
FILLED = ("folder",)
ACTED = True  # on simulated servers, and never run there
STEP_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Params:
    model: str = param("choice", zh="结构", en="Architecture", default="qwen2", choices=KINDS)
    layers: str = param(
        "choice", zh="层数", en="Layers", default="28", choices=tuple(map(str, LAYERS)),
        help=Text("28 层可用于量化；2 层更小。", "28 for quantizing; 2 is smaller."),
    )  # fmt: skip
    target: str = param(
        "new_folder", zh="目录", en="Folder", default="", pattern=f"({PATH})?", example=EXAMPLE,
        help=Text("留空：服务器的模型目录下的 sample-<结构>-<层数>。", "Empty: below the server's folder of models."),
    )  # fmt: skip
    folder: str = param("text", zh="写入", en="Written to", default="", pattern=f"({PATH})?", example=EXAMPLE)


def locks(p: Params) -> list[str]:
    return [lock(p.folder)]


def steps(p: Params) -> list[Step]:
    argv = python_module("deployments.agent.models.sample", p.folder, p.model, p.layers)
    title = Text(f"写入 {p.model}，{p.layers} 层", f"Write {p.model} with {p.layers} layers")
    return [Step(title, argv, timeout_s=STEP_TIMEOUT_S, skips=(THERE,))]


def undo(p: Params) -> list[Step]:
    """Nothing here: models are deleted on their own page."""
    return []
