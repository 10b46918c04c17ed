"""What a model's config.json says of it."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from deployments.artifacts import BadModel
from deployments.artifacts.tensors import open_regular
from deployments.steps import Text

MOST_BYTES = 64 * 1024 * 1024  # DeepSeek's index of shards has 9 MB


class Shape(NamedTuple):
    """Numbers of the architecture; None where the file does not say."""

    architecture: str
    model_type: str
    dtype: str
    layers: int | None
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    kv_lora_rank: int | None
    qk_rope_head_dim: int | None
    vocab: int | None
    max_position: int | None
    experts: int | None
    tied: bool
    quant_method: str
    code_files: tuple[str, ...]  # Python files of its own that it asks for


def read_json(path: Path) -> dict[str, Any]:
    """An object of a file of the model. Raises BadModel."""
    try:
        descriptor = open_regular(path)
        with os.fdopen(descriptor, "rb") as file:
            data = json.loads(file.read(MOST_BYTES + 1)[:MOST_BYTES])
    except OSError as error:
        raise BadModel(
            Text(f"{path.name} 无法读取（{error.strerror}）。", f"{path.name} cannot be read ({error.strerror}).")
        ) from error
    except (ValueError, RecursionError) as error:
        raise _no_object(path) from error
    if not isinstance(data, dict):
        raise _no_object(path)
    return data


def as_far_as_read(folder: Path) -> dict[str, Any]:
    """The model's config.json; {} where it cannot be read, which others tell of."""
    try:
        return read_json(folder / "config.json")
    except BadModel:
        return {}


def _no_object(path: Path) -> BadModel:
    return BadModel(
        Text(
            f"{path.name} 不是有效的 JSON 对象。请重新下载这个文件。",
            f"{path.name} is no JSON object. Download that file again.",
        )
    )


def shape(data: dict[str, Any]) -> Shape:
    """Models with pictures keep the numbers of their language part in `text_config`."""
    inner = data.get("text_config")
    text = {**data, **inner} if isinstance(inner, dict) else data
    architectures = data.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else ""
    quant = data.get("quantization_config")
    return Shape(
        architecture=_word(first),
        model_type=_word(data.get("model_type")),
        dtype=_word(text.get("torch_dtype") or text.get("dtype")),
        layers=_number(text, "num_hidden_layers", "n_layer", "num_layers"),
        hidden=_number(text, "hidden_size", "n_embd"),
        heads=_number(text, "num_attention_heads", "n_head"),
        kv_heads=_number(text, "num_key_value_heads", "num_attention_heads", "n_head"),
        head_dim=_number(text, "head_dim") or _ratio(text),
        kv_lora_rank=_number(text, "kv_lora_rank"),
        qk_rope_head_dim=_number(text, "qk_rope_head_dim"),
        vocab=_number(text, "vocab_size"),
        max_position=_number(text, "max_position_embeddings", "n_positions", "seq_length"),
        experts=_number(text, "n_routed_experts", "num_experts", "num_local_experts"),
        tied=text.get("tie_word_embeddings") is True,
        quant_method=_word(quant.get("quant_method")) if isinstance(quant, dict) else "",
        code_files=_code_files(data),
    )


def _word(value: Any) -> str:
    return value[:100] if isinstance(value, str) else ""


def _number(data: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = data.get(name)
        if type(value) is int and 0 <= value < 10**12:
            return value
    return None


def _ratio(data: dict[str, Any]) -> int | None:
    hidden, heads = _number(data, "hidden_size", "n_embd"), _number(data, "num_attention_heads", "n_head")
    return hidden // heads if hidden and heads else None


def _code_files(data: dict[str, Any]) -> tuple[str, ...]:
    """`auto_map` names classes as `file.Class`, of another repository as `name--file.Class`."""
    named = data.get("auto_map")
    words = [one for value in (named.values() if isinstance(named, dict) else ())
             for one in (value if isinstance(value, list) else [value])]  # fmt: skip
    files = (word.partition(".")[0] for word in words if isinstance(word, str) and "--" not in word)
    return tuple(sorted({f"{name}.py" for name in files if name.isidentifier()}))
