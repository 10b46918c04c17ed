"""What keeps a model from a chip or from a way to divide it, in words: looked at before any memory is counted."""

from typing import NamedTuple

from deployments.serving.sizing import Engine
from deployments.serving.spec import Spec
from deployments.steps import Text

# What vLLM-Ascend 0.23.0 loads on which family (its quantization methods).
LOADS: dict[str, tuple[str, ...]] = {
    "A2": ("w8a8", "w8a16", "w4a8", "w4a16", "w4a4", "w8a8c8", "w4a8c8"),
    "A3": ("w8a8", "w8a16", "w4a8", "w4a16", "w4a4", "w8a8c8", "w4a8c8"),
    "310P": ("w8a8", "w8a8s", "w8a8sc"),
    "A5": ("w4a8", "w4a4", "w4a16", "mxfp8"),
}
NO_BF16 = ("310P", "A1", "310B")
UNSUPPORTED = ("A1", "310B")


class Refusal(NamedTuple):
    """Why something does not go, and what would make it go. `way` is the division it is about, '' where it is all."""

    code: str
    why: Text
    do: Text
    way: str = ""


def sentence(one: Refusal) -> Text:
    """Why and what to do, in one."""
    return Text(f"{one.why.zh}{one.do.zh}", f"{one.why.en} {one.do.en}")


def of_chip(spec: Spec, family: str, dtype: str) -> list[Refusal]:
    """What no division of the model helps against. `dtype` is what the operator wants, auto where he says nothing."""
    found = []
    if family in UNSUPPORTED:
        found.append(
            Refusal(
                "chip",
                Text(
                    f"vLLM-Ascend 不支持这种芯片（{family}）。", f"vLLM-Ascend does not support this chip ({family})."
                ),
                Text("请选择 A2、A3、310P 或 950 的服务器。", "Choose a server with A2, A3, 310P or 950."),
            )
        )
    if family in NO_BF16 and dtype in ("bfloat16", "bf16"):
        found.append(
            Refusal(
                "bf16",
                Text(f"{family} 没有 bf16。", f"{family} has no bf16."),
                Text("请用 --dtype float16。", "Take --dtype float16."),
            )
        )
    if spec.foreign_quant and not (family == "A5" and spec.foreign_quant == "FP8"):
        found.append(_foreign(spec, family))
    if spec.quant and family in LOADS and spec.quant not in LOADS[family]:
        found.append(
            Refusal(
                "quant",
                Text(f"{family} 不能加载 {spec.quant}。", f"{family} does not load {spec.quant}."),
                Text(f"可用：{', '.join(LOADS[family])}。", f"It loads {', '.join(LOADS[family])}."),
            )
        )
    return found


def _foreign(spec: Spec, family: str) -> Refusal:
    kind = spec.foreign_quant
    if kind in ("COMPRESSED-TENSORS",):
        return Refusal(
            "unsure",
            Text("compressed-tensors 的权重只有部分类型可以加载。", "Of compressed-tensors only some types load."),
            Text("请用 msModelSlim 量化，或先试一张卡。", "Quantize with msModelSlim, or try it on one NPU first."),
        )
    remedy = (
        Text("请先转换为 BF16，再量化为 w8a8。", "Convert it to BF16 first, then quantize it to w8a8.")
        if kind == "FP8"
        else Text(
            "请取原始权重，用 msModelSlim 量化。", "Take the original weights, and quantize them with msModelSlim."
        )
    )
    return Refusal(
        "foreign_quant",
        Text(
            f"{kind} 权重是为 GPU 做的，{family} 不能加载。",
            f"{kind} weights are made for GPUs: {family} does not load them.",
        ),
        remedy,
    )


def of_context(spec: Spec, wanted: int | None) -> list[Refusal]:
    if wanted is None or spec.max_position is None or wanted <= spec.max_position:
        return []
    return [
        Refusal(
            "context",
            Text(
                f"上下文 {wanted:,} 超过模型的 {spec.max_position:,}。",
                f"A context of {wanted:,} is beyond the model's {spec.max_position:,}.",
            ),
            Text(f"请填 {spec.max_position:,} 或更小。", f"Take {spec.max_position:,} or less."),
        )
    ]


def of_division(spec: Spec, engine: Engine, group: int) -> Refusal | None:
    """Why the model cannot be divided so; None where it can. `group` is how many NPUs one HCCS group has."""
    tp, way = engine.tp, words(engine)
    fitting = ", ".join(str(n) for n in (1, 2, 4, 8, 16) if spec.heads % n == 0 and n <= group)
    if spec.heads % tp:
        return Refusal(
            "heads",
            Text(
                f"{spec.heads} 个注意力头不能被 {tp} 整除。", f"{spec.heads} attention heads cannot be divided by {tp}."
            ),
            Text(f"张量并行可取 {fitting}。", f"Tensor parallel may be {fitting}."),
            way,
        )
    if not spec.is_mla and spec.kv_heads % tp and tp % spec.kv_heads:
        return Refusal(
            "kv_heads",
            Text(
                f"{spec.kv_heads} 个 KV 头与 {tp} 互不整除。",
                f"{spec.kv_heads} KV heads and {tp} do not divide each other.",
            ),
            Text(f"张量并行可取 {fitting}。", f"Tensor parallel may be {fitting}."),
            way,
        )
    if tp > group:
        return Refusal(
            "group",
            Text(
                f"一个 HCCS 组只有 {group} 个 NPU，放不下 TP {tp}。",
                f"One HCCS group has {group} NPUs, too few for TP {tp}.",
            ),
            Text("请减小张量并行，或用流水并行跨服务器。", "Take a smaller one, or pipeline parallel over servers."),
            way,
        )
    if engine.pp > spec.layers:
        return Refusal(
            "layers",
            Text(
                f"只有 {spec.layers} 层，分不成 {engine.pp} 段。", f"{spec.layers} layers make no {engine.pp} stages."
            ),
            Text("请减小流水并行。", "Take fewer stages."),
            way,
        )
    return None


def words(engine: Engine) -> str:
    """`TP 4 · DP 2 · EP`"""
    parts = [f"TP {engine.tp}"]
    parts += [f"{name} {size}" for name, size in (("PP", engine.pp), ("DP", engine.dp)) if size > 1]
    return " · ".join([*parts, *(["EP"] if engine.ep else [])])
