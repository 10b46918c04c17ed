"""What a plan needs to know of a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Bytes of one parameter, as weights are kept.
DTYPE_BYTES = {
    "BF16": 2.0, "F16": 2.0, "F32": 4.0, "I8": 1.0, "F8_E4M3": 1.0, "BFLOAT16": 2.0, "FLOAT16": 2.0, "FLOAT32": 4.0,
}  # fmt: skip
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


def from_row(row: Mapping[str, Any], quant: str = "") -> Spec:
    """Of a row of models.json, in 16 bits or as `quant`. Raises Unknown."""
    billions = row.get("params_computed_b") or row.get("params_total_b")
    if not billions:
        raise Unknown("params_total_b")
    moe = row.get("moe") or {}
    per_parameter = QUANT_BYTES.get(quant, 2.0)
    return Spec(
        name=str(row["hf_id"]),
        layers=_need(row, "layers"),
        hidden=_need(row, "hidden"),
        heads=_need(row, "attention_heads"),
        kv_heads=row.get("kv_heads") or _need(row, "attention_heads"),
        head_dim=row.get("head_dim") or _need(row, "hidden") // _need(row, "attention_heads"),
        vocab=row.get("vocab") or 0,
        max_position=row.get("max_position_embeddings"),
        weight_mb=billions * 1e9 * per_parameter / 2**20,
        quant=quant,
        kv_lora_rank=row.get("kv_lora_rank") or 0,
        rope_dim=row.get("qk_rope_head_dim") or 0,
        kv_layers=row.get("full_attention_layers") or _need(row, "layers"),
        intermediate=row.get("intermediate_size") or 0,
        experts=moe.get("experts") or 0,
        expert_share=_expert_share(row, moe, billions),
        supported=str(row.get("ascend_support") or ""),
    )


def _expert_share(row: Mapping[str, Any], moe: Mapping[str, Any], billions: float) -> float:
    """Three matrices of hidden × moe_intermediate_size for each expert of each layer."""
    if not moe.get("experts") or not moe.get("moe_intermediate_size"):
        return 0.0
    numbers = row["layers"] * moe["experts"] * 3 * row["hidden"] * moe["moe_intermediate_size"]
    return min(0.98, float(numbers) / (billions * 1e9))


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
