"""Known failures of engines: what they print, what it means, and what helps, best first. Plain code, tables only.

A signature is looked for in one line at a time, so that numbers and versions of it do not matter. `rank` puts a cause
before what follows from it: a rank of a group that waits in vain has mostly not failed itself.
"""

from typing import Any, NamedTuple

from deployments.steps import Text

ROOT, FOLLOWS = 0, 1


class Remedy(NamedTuple):
    """`change`: fields of Settings with their new values. `way` names what serving/remedies.py computes from the
    settings at hand. `job`: {"kind", "params"}."""

    text: Text
    change: dict[str, Any] | None = None
    job: dict[str, Any] | None = None
    way: str = ""


class Known(NamedTuple):
    """`sign` may name groups, which stand as {name} in the texts."""

    id: str
    sign: str
    cause: Text
    remedies: tuple[Remedy, ...]
    rank: int = ROOT


def way(name: str, zh: str, en: str) -> Remedy:
    return Remedy(Text(zh, en), way=name)


def say(zh: str, en: str) -> Remedy:
    return Remedy(Text(zh, en))


def job(kind: str, zh: str, en: str) -> Remedy:
    return Remedy(Text(zh, en), job={"kind": kind, "params": {}})


SHORTER = way("context", "减小上下文，直到 KV 缓存放得下。", "Shorten the context until the KV cache holds it.")
FEWER = way("seqs", "减小同时处理的请求数。", "Let fewer requests run at once.")
MORE_SHARE = way("share_up", "提高显存使用比例。", "Let the engine use a larger share of the memory.")
LESS_SHARE = way("share_down", "降低显存使用比例，给图捕获和通信留出空间。",
                 "Let the engine use a smaller share of the memory, so that graphs and links have room.")  # fmt: skip
MORE_NPUS = way("tp_up", "把模型分到更多 NPU 上。", "Divide the model over more NPUs.")
SMALLER_BATCH = way("batch", "减小每一步处理的词元数。", "Let one step take fewer tokens.")
FEWER_GRAPHS = way("captures", "少捕获几种图的大小。", "Capture graphs of fewer sizes.")
DECODE_ONLY = way("decode_only", "只为解码捕获图。", "Capture graphs for decoding alone.")
EAGER = way("eager", "不捕获图（慢一些，用于判断原因）。", "Capture no graphs: slower, but it tells.")
FLOAT16 = way("float16", "用 float16。", "Take float16.")
QUANTIZED = say("换用量化为 W8A8 的模型。", "Serve the model quantized to W8A8.")
CHECK = job("check", "检查服务器：驱动、固件、CANN 与链路。", "Check the server: driver, firmware, CANN and links.")
INSTALL = job("install", "把配套的软件栈重新装到服务器上。", "Install a stack whose parts go together on the server.")
RESET = job("reset", "复位这个 NPU。", "Reset the NPU.")
OTHER_NPU = say("换一个空闲的 NPU。", "Choose a free NPU.")
