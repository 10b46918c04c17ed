"""What a plan needs to know of a model."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deployments.artifacts.known import Known

# Bytes of one parameter, as weights are kept.
DTYPE_BYTES = {"BF16": 2.0, "F16": 2.0, "F32": 4.0}
# Of a quantized one, with scales, and with what stays in 16 bits (embeddings, head, layers that fell back).
QUANT_BYTES = {"w8a8": 1.06, "w8a16": 1.06, "w4a8": 0.62, "w4a16": 0.62, "w4a4": 0.62, "w8a8c8": 1.06, "w4a8c8": 0.62}
KV_BYTES = 2.0  # of one number of the cache; C8 keeps one byte


@dataclass(frozen=True)
class Spec:
    """`weight_mb` of all weights as they are served, MiB. `kv_layers` are layers that keep a cache: fewer than `layers`
    in models that mix kinds of attention. `expert_share` is the part of the weights that experts are."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_position: int | None
    weight_mb: float
    dtype: str = "BF16"  # what the engine computes in: BF16, F16 or F32
    quant: str = ""  # of msModelSlim, in small letters: w8a8
    foreign_quant: str = ""  # of another tool: FP8, AWQ, GPTQ
    kv_lora_rank: int = 0  # more than 0: MLA
    rope_dim: int = 0
    kv_layers: int = 0
    intermediate: int = 0
    experts: int = 0
    expert_share: float = 0.0
    remote_code: bool = False
    supported: str = ""  # what vLLM-Ascend's documents say of it

    @property
    def is_mla(self) -> bool:
        return self.kv_lora_rank > 0

    @property
    def is_moe(self) -> bool:
        return self.experts > 0


class Unknown(ValueError):
    """A number that a plan needs is not known; its name."""


def from_summary(summary: Mapping[str, Any], *, name: str, weight_bytes: int) -> Spec:
    """Of an artifact, as deployments/artifacts/read.py has read it. Raises Unknown."""
    quant = str(summary.get("quant_type") or "").lower().partition("_")[0]  # w8a8_dynamic loads where w8a8 does
    ours = quant.startswith(("w8a", "w4a"))
    computed = str(summary.get("dtype") or "").upper()
    return Spec(
        name=name,
        layers=_need(summary, "layers"),
        hidden=_need(summary, "hidden"),
        heads=_need(summary, "heads"),
        kv_heads=summary.get("kv_heads") or _need(summary, "heads"),
        head_dim=_head_dim(summary),
        vocab=summary.get("vocab") or 0,
        max_position=summary.get("max_position"),
        weight_mb=(summary.get("weight_bytes") or weight_bytes) / 2**20,
        dtype=computed if computed in ("BF16", "F16", "F32") else "BF16",
        quant=quant if ours else "",
        foreign_quant="" if ours else quant.upper(),
        kv_lora_rank=summary.get("kv_lora_rank") or 0,
        rope_dim=summary.get("qk_rope_head_dim") or 0,
        kv_layers=_need(summary, "layers"),
        experts=summary.get("experts") or 0,
        remote_code=summary.get("remote_code") is True,
    )


def from_known(row: Known, quant: str = "") -> Spec:
    """Of a model that is known beforehand, in 16 bits or as `quant`. Raises Unknown."""
    kind = "bf16" if not quant else "int4" if quant.startswith("w4") else "int8"
    weights = row.weights[kind]
    if weights is None:
        raise Unknown("params_b")
    heads, hidden = _given(row.heads, "heads"), _given(row.hidden, "hidden")
    return Spec(
        name=row.id,
        layers=_given(row.layers, "layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=row.kv_heads or heads,
        head_dim=row.head_dim or hidden // heads,
        vocab=row.vocab or 0,
        max_position=row.max_position,
        weight_mb=weights * 1e9 / 2**20,
        quant=quant,
        kv_lora_rank=row.kv_lora_rank or 0,
        rope_dim=row.qk_rope_head_dim or 0,
        kv_layers=row.full_attention_layers or _given(row.layers, "layers"),
        experts=row.experts or 0,
        expert_share=_expert_share(row),
        supported=row.support.text,
    )


def completed(spec: Spec, row: Known) -> Spec:
    """With what the files of a model do not say and its row knows: how much of it are experts, which layers keep a
    cache. A row of another model, by its layers, adds nothing."""
    if row.layers != spec.layers:
        return spec
    share, layers = _expert_share(row) or spec.expert_share, row.full_attention_layers or spec.kv_layers
    return dataclasses.replace(spec, expert_share=share, kv_layers=layers, supported=row.support.text)


def _expert_share(row: Known) -> float:
    """Of a mixture of experts, what is not active for a token is taken for experts."""
    return 1 - row.active_b / row.params_b if row.experts and row.active_b and row.params_b else 0.0


def quantized(spec: Spec, quant: str) -> Spec:
    """The same model as it would be after quantizing it; what is quantized already stays as it is."""
    if spec.quant or spec.foreign_quant or not quant:
        return spec
    ratio = QUANT_BYTES.get(quant, 2.0) / DTYPE_BYTES.get(spec.dtype, 2.0)
    return dataclasses.replace(spec, weight_mb=spec.weight_mb * ratio, quant=quant)


def _given(value: int | None, name: str) -> int:
    if not value:
        raise Unknown(name)
    return value


def _need(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise Unknown(name)
    return value


def _head_dim(summary: Mapping[str, Any]) -> int:
    found = summary.get("head_dim")
    return found if isinstance(found, int) and found > 0 else _need(summary, "hidden") // _need(summary, "heads")


def kv_bytes_per_token(spec: Spec, tp: int = 1, pp: int = 1) -> float:
    """Bytes of one token's cache on one NPU.

    GQA keys and values are divided among `tp`, but not below one head; the latent of MLA lies on each of them whole.
    """
    layers = -(-spec.kv_layers // pp)
    one = 1.0 if spec.quant.endswith("c8") else 4.0 if spec.dtype == "F32" else KV_BYTES
    if spec.is_mla:
        return layers * (spec.kv_lora_rank + spec.rope_dim) * one
    return 2 * layers * max(1, -(-spec.kv_heads // tp)) * spec.head_dim * one
