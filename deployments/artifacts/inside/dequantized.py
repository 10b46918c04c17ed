"""What msModelSlim wrote, as modules of transformers: each quantized layer computes with its int8 weights made floats
again, and with its activations rounded as the description says. The Python of the tools runs it; it knows nothing of
ours.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

DESCRIPTION = "quant_model_description.json"
STATIC, DYNAMIC, WEIGHTS = ("W8A8",), ("W8A8_DYNAMIC",), ("W8A16",)
KNOWN = (*STATIC, *DYNAMIC, *WEIGHTS, "FLOAT")
PARTS = ("weight", "weight_scale", "weight_offset", "input_scale", "input_offset", "deq_scale", "quant_bias", "bias")


class Cannot(Exception):
    """(zh, en) in its arguments: this engine cannot compute with such weights."""


class QuantizedLinear(nn.Module):  # type: ignore[misc]  # torch is in the tools' environment only
    """A linear layer of the child. `scale`, `offset` of the input are None where each token is rounded by its own
    greatest value (`dynamic`), or none is."""

    def __init__(self, weight: Any, bias: Any, scale: Any = None, offset: Any = None, dynamic: bool = False) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.register_buffer("scale", scale)
        self.register_buffer("offset", offset)
        self.dynamic = dynamic

    def forward(self, x: Any) -> Any:
        if self.dynamic:
            scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-8) / 127
            x = torch.clamp(torch.round(x / scale), -128, 127) * scale
        elif self.scale is not None:
            rounded = torch.clamp(torch.round(x / self.scale) + self.offset, -128, 127)
            x = (rounded - self.offset) * self.scale
        return nn.functional.linear(x, self.weight, self.bias)


def types(folder: str) -> dict[str, str]:
    """Tensor -> type of the description. Raises Cannot."""
    found = json.loads((Path(folder) / DESCRIPTION).read_text(encoding="utf-8"))
    rows = {name: kind for name, kind in found.items() if isinstance(kind, str) and "." in name}
    strange = sorted({kind for kind in rows.values() if kind not in KNOWN})
    if strange:
        words, known = ", ".join(strange)[:200], ", ".join(KNOWN)
        raise Cannot(
            f"“参考”引擎不会计算类型 {words}，只会 {known}。请在有 NPU 的服务器上用 vLLM 评测。",
            f"The engine “reference” cannot compute with the type {words}, only with {known}. Evaluate it with vLLM on "
            "a server with NPUs.",
        )
    return rows


def tensors(folder: str) -> dict[str, Any]:
    """Name -> tensor of every .safetensors file."""
    found: dict[str, Any] = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            found.update({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 - it is no dict
    return found


def fill(model: Any, folder: str) -> list[tuple[str, str]]:
    """Put the child's weights into a model of its architecture. Gives notes, (zh, en) each. Raises Cannot."""
    kinds, left = types(folder), tensors(folder)
    counted = dict.fromkeys((*STATIC, *DYNAMIC, *WEIGHTS), 0)
    for name, kind in kinds.items():
        if kind == "FLOAT" or not name.endswith(".weight"):
            continue
        at = name.removesuffix(".weight")
        parts = {part: left.pop(f"{at}.{part}") for part in PARTS if f"{at}.{part}" in left}
        _replace(model, at, _layer(at, kind, parts))
        counted[kind] += 1
    _load_floats(model, left)
    return notes(counted)


def _layer(at: str, kind: str, parts: dict[str, Any]) -> QuantizedLinear:
    try:
        weight = parts["weight"].float()
        if kind in STATIC:
            scale, offset = parts["input_scale"].float(), parts["input_offset"].float()
            deq = floats(parts["deq_scale"]).reshape(-1, 1)
            # The layer's own bias is inside of quant_bias, with what the input's offset brings along taken off.
            bias = (parts["quant_bias"].float().reshape(-1) + weight.sum(dim=1) * offset) * deq.reshape(-1)
            return QuantizedLinear(weight * (deq / scale), bias, scale, offset)
        scale, offset = parts["weight_scale"].float(), parts["weight_offset"].float()
        bias = parts["bias"].float() if "bias" in parts else None
        return QuantizedLinear(in_groups(weight, scale, offset), bias, dynamic=kind in DYNAMIC)
    except KeyError as error:
        raise Cannot(
            f"{at} 缺少 {error.args[0]}，子模型不完整。请重新量化。",
            f"{at} lacks {error.args[0]}: the child is not whole. Quantize it again.",
        ) from error


def floats(deq_scale: Any) -> Any:
    """As float32; for models that are not bfloat16 the tool writes the bits of each float32 as an int64."""
    if deq_scale.dtype == torch.int64:
        return deq_scale.to(torch.int32).view(torch.float32)
    return deq_scale.float()


def in_groups(weight: Any, scale: Any, offset: Any) -> Any:
    """(int8 - offset) * scale, with one scale for each row or for each group of columns."""
    if scale.dim() == 1:
        scale, offset = scale.unsqueeze(-1), offset.unsqueeze(-1)
    if scale.shape[1] > 1:
        size = weight.shape[1] // scale.shape[1]
        scale, offset = scale.repeat_interleave(size, 1), offset.repeat_interleave(size, 1)
    return (weight - offset) * scale


def _replace(model: Any, at: str, layer: Any) -> None:
    parent, _dot, own = at.rpartition(".")
    try:
        setattr(model.get_submodule(parent), own, layer)
    except AttributeError as error:
        raise Cannot(
            f"模型里没有 {at} 这一层；配置与权重不配。",
            f"The model has no layer {at}: its configuration does not fit the weights.",
        ) from error


def _load_floats(model: Any, left: dict[str, Any]) -> None:
    wanted = {name for name, _one in model.named_parameters()}
    missing, strange = model.load_state_dict({n: t.float() for n, t in left.items()}, strict=False)
    tied = {"lm_head.weight"} if getattr(model.config, "tie_word_embeddings", False) else set()
    lacking = sorted((set(missing) & wanted) - tied)
    if lacking or strange:
        names = ", ".join([*lacking, *strange][:5])
        raise Cannot(
            f"权重与模型结构对不上：{names}。请重新量化，或在有 NPU 的服务器上用 vLLM 评测。",
            f"The weights do not fit the architecture: {names}. Quantize again, or evaluate with vLLM on a server with "
            "NPUs.",
        )
    if tied:
        model.tie_weights()


def notes(counted: dict[str, int]) -> list[tuple[str, str]]:
    layers = {kind: n for kind, n in counted.items() if n}
    words = ", ".join(f"{kind} × {n}" for kind, n in layers.items())
    zh, en = f"子模型的量化层：{words}。", f"Quantized layers of the child: {words}."
    if any(layers.get(kind) for kind in STATIC):
        zh += "激活按文件里的静态比例取整。"
        en += " Activations were rounded by the static scales of its files."
    if any(layers.get(kind) for kind in DYNAMIC):
        zh += "激活逐词元取整，比例在计算时得出。"
        en += " Activations were rounded token by token, by scales found on the way."
    if any(layers.get(kind) for kind in WEIGHTS):
        zh += "W8A16 的激活不量化，因此也没有模拟。"
        en += " W8A16 does not quantize activations, so nothing was simulated there."
    return [(zh, en)]
