"""Whether what msModelSlim has written is whole and belongs to its parent. Its exit code proves nothing.

Headers are read, and of each scale a few numbers: a scale that is no number makes every answer garbage.
"""

import array
import math
import os
import re
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from deployments.artifacts import BadModel
from deployments.artifacts.config import read_json
from deployments.artifacts.read import DESCRIPTION, Model, is_weight, read
from deployments.artifacts.tensors import Header, Tensor, header, open_regular
from deployments.steps import Text

FLOAT = "FLOAT"
FLOATS = ("BF16", "F16", "F32", "F64")
INTEGERS = ("I8", "U8", "I32", "F4")
MX = ("F8_E4M3", "U8", "I8", "F4")
PER_CHANNEL = ("weight_scale", "weight_offset")
STATIC = ("input_scale", "input_offset", "quant_bias", "deq_scale")
# What lies beside each weight of a type, so that vLLM-Ascend finds it.
BESIDE = {
    "W8A8": STATIC,
    "W8A8_MIX": (*STATIC, *PER_CHANNEL),
    "W8A8_DYNAMIC": PER_CHANNEL,
    "W8A16": PER_CHANNEL,
    "W4A8_DYNAMIC": PER_CHANNEL,
    "W4A16": PER_CHANNEL,
    "W4A4_DYNAMIC": ("weight_scale",),
}
UNNEEDED = re.compile(r"rotary_emb\.inv_freq$|\.masked_bias$")  # of old checkpoints; computed when it is loaded
LAYER = re.compile(r"\blayers\.(\d+)\.")
TAIL = re.compile(r"(?:layers|blocks|block)\.\d+\..*")
MOST_NAMED = 5
SAMPLE = 256  # numbers of each scale that are looked at


class Verified(NamedTuple):
    """`kinds`: how many weights have each type."""

    tensors: int
    kinds: dict[str, int]


def check(made: Path, parent: Path, quant_type: str) -> Verified:
    """Raises BadModel naming the first things that are wrong."""
    if not (made / DESCRIPTION).is_file():
        raise wrong([Text(f"没有 {DESCRIPTION}", f"there is no {DESCRIPTION}")])
    model, before = read(made), read(parent)
    if model.problems:
        raise wrong([problem.text for problem in model.problems])
    described = kinds(read_json(made / DESCRIPTION))
    headers = _headers(made)
    tensors = {name: tensor for one in headers.values() for name, tensor in one.tensors.items()}
    wanted = {name: tensor for one in _headers(parent).values() for name, tensor in one.tensors.items()}
    found = [*_described(tensors, described), *_covered(wanted, tensors, described, before)]
    found += _types(tensors, described) + _asked(described, quant_type) + _scales(made, headers)
    if found:
        raise wrong(found)
    weights = {name: kind for name, kind in described.items() if name in tensors and name.endswith(".weight")}
    return Verified(len(tensors), dict(Counter(weights.values())))


def kinds(description: dict[str, object]) -> dict[str, str]:
    """Type of each tensor; the other keys of the description tell of the whole."""
    return {name: value for name, value in description.items() if "." in name and isinstance(value, str)}


def _headers(folder: Path) -> dict[str, Header]:
    """Raises BadModel."""
    return {path.name: header(path) for path in sorted(folder.glob("*.safetensors"))}


def _described(tensors: dict[str, Tensor], described: dict[str, str]) -> list[Text]:
    """Each weight has its type, and each type of a weight its tensor. Rotations have no type, settings no tensor."""
    weights = {name for name in tensors if name.endswith(".weight")}
    named = {name for name in described if name.endswith(".weight")}
    return [
        *_named("没有类型的权重", "weights without a type", weights - named),
        *_named("有类型而没有的权重", "weights that are described and not there", named - weights),
    ]


def _covered(
    wanted: dict[str, Tensor], tensors: dict[str, Tensor], described: dict[str, str], parent: Model
) -> list[Text]:
    """Each weight of the parent has its counterpart, of the same shape where it was not packed. Layers behind the last
    one, which guess tokens ahead, are left out by some recipes."""
    tails = {found[0] for name in tensors if (found := TAIL.search(name))}
    gone, other = [], []
    for name, one in wanted.items():
        if not is_weight(name) or UNNEEDED.search(name) or _is_beyond(name, parent.layers):
            continue
        there = _counterpart(name, tensors)
        if there is None:
            tail = TAIL.search(name)  # some adapters name the outer parts otherwise
            if not (tail and tail[0] in tails) and not (parent.tied and name == "lm_head.weight"):
                gone.append(name)
        elif not described.get(there, "").startswith("W4") and tensors[there].shape != one.shape:
            other.append(name)
    return [
        *_named("缺少的权重", "weights that are missing", gone),
        *_named("形状不同的权重", "weights of another shape", other),
    ]


def _is_beyond(name: str, layers: int | None) -> bool:
    found = LAYER.search(name)
    return bool(found and layers and int(found[1]) >= layers)


def _counterpart(name: str, tensors: dict[str, Tensor]) -> str | None:
    """The tensor that stands for a weight: of the same name, within a wrapper, or for a bias the quantized one."""
    base, _dot, last = name.rpartition(".")
    names = [name, f"{base}.linear.{last}", *([f"{base}.quant_bias"] if last == "bias" else [])]
    return next((one for one in names if one in tensors), None)


def _types(tensors: dict[str, Tensor], described: dict[str, str]) -> list[Text]:
    """Numbers are of the kind that the type means, and scales lie beside each weight."""
    dtypes, beside, rows = [], [], []
    for name, kind in described.items():
        tensor = tensors.get(name)
        if tensor is None or not name.endswith(".weight"):
            continue
        if tensor.dtype not in _dtypes(kind):
            dtypes.append(f"{name} ({kind}: {tensor.dtype})")
        if kind == FLOAT or kind.startswith("W16"):
            continue
        base = name.removesuffix("weight")
        beside += [base + one for one in BESIDE.get(kind, ("weight_scale",)) if base + one not in tensors]
        scale = tensors.get(f"{base}weight_scale")
        if kind.startswith("W8") and scale and scale.shape and tensor.shape and scale.shape[0] != tensor.shape[0]:
            rows.append(f"{base}weight_scale")
    return [
        *_named("数值类型与量化类型不符", "numbers that do not fit their type", dtypes),
        *_named("缺少的比例或偏移", "scales or offsets that are missing", beside),
        *_named("行数与权重不同的比例", "scales with other rows than their weight", rows),
    ]


def _dtypes(kind: str) -> tuple[str, ...]:
    if kind == FLOAT or kind.startswith("W16"):
        return FLOATS
    return MX if "MX" in kind or "FP" in kind else INTEGERS


def _asked(described: dict[str, str], quant_type: str) -> list[Text]:
    found = re.match(r"w\d+a\d+", quant_type)
    wanted = found[0].upper() if found else quant_type.upper()
    if any(kind.startswith(wanted) for kind in described.values()):
        return []
    there = ", ".join(sorted(set(described.values()))) or "—"
    return [Text(f"没有一个 {wanted} 的权重，只有 {there}", f"no weight is {wanted}, there is only {there}")]


def _scales(folder: Path, headers: dict[str, Header]) -> list[Text]:
    """Scales that are no numbers, or zero throughout what is looked at."""
    bad: list[str] = []
    for file, one in headers.items():
        names = [name for name, row in one.tensors.items() if name.endswith("weight_scale") and row.dtype in FLOATS]
        if not names:
            continue
        descriptor = open_regular(folder / file)
        try:
            for name in names:
                row = one.tensors[name]
                if not _finite(descriptor, one.data_from + row.begin, row):
                    bad.append(name)
        finally:
            os.close(descriptor)
    return _named("不是有效数值的比例", "scales that are no numbers", bad)


def _finite(descriptor: int, at: int, row: Tensor) -> bool:
    values = numbers(os.pread(descriptor, min(row.end - row.begin, SAMPLE * 8), at), row.dtype)
    return all(map(math.isfinite, values)) and (not values or any(values))


def numbers(data: bytes, dtype: str) -> list[float]:
    """The numbers of a tensor's bytes, little endian."""
    if dtype == "BF16":  # the upper half of a float32
        data = b"".join(b"\0\0" + data[n : n + 2] for n in range(0, len(data) - 1, 2))
    if dtype == "F16":
        return list(struct.unpack(f"<{len(data) // 2}e", data[: len(data) // 2 * 2]))
    code = "d" if dtype == "F64" else "f"
    made = array.array(code)
    made.frombytes(data[: len(data) // made.itemsize * made.itemsize])
    return list(made)


def _named(zh: str, en: str, names: Iterable[str]) -> list[Text]:
    found = sorted(names)
    if not found:
        return []
    some = ", ".join(name[:150] for name in found[:MOST_NAMED])
    return [Text(f"{zh}（{len(found)}）：{some}", f"{en} ({len(found)}): {some}")]


def wrong(problems: list[Text]) -> BadModel:
    zh = "；".join(one.zh.rstrip("。") for one in problems[:MOST_NAMED])
    en = "; ".join(one.en.rstrip(".") for one in problems[:MOST_NAMED])
    return BadModel(
        Text(
            f"量化结果没有通过核对，因此不会作为模型提供：{zh}。请看上面的日志，再重试。",
            f"What came out did not pass the verification, so it is not offered as a model: {en}. See the log above, "
            "then "
            "try again.",
        )
    )
