"""What a model takes, by plain arithmetic: weights, KV cache, and how many NPUs hold them. GB are 10⁹ bytes."""

KINDS = ("bf16", "int8", "int4")
KV_FIELDS = ("layers", "kv_heads", "head_dim", "kv_lora_rank", "qk_rope_head_dim", "full_attention_layers")
COUNTS = (1, 2, 4, 8, 16, 32, 64)  # heads are split by powers of two
SHARE = 0.9  # of an NPU's memory that vLLM takes
WORKING_GB = 2.0  # activations and graphs on each NPU
TOKENS = 8192  # of context that are to fit at least
GIB = 2**30 / 1e9  # an NPU "of 64 GB" has 64 GiB
SCALES = 2 / 128  # bytes a number, for one 16 bit scale of 128 numbers


def weights_gb(params_b: float | None, embedded_b: float, kind: str) -> float | None:
    """GB of weights. Embeddings and the last layer (`embedded_b` · 10⁹ numbers) stay in 16 bit when quantized."""
    if params_b is None:
        return None
    if kind == "bf16":
        return 2 * params_b
    embedded = min(embedded_b, params_b)
    return 2 * embedded + (params_b - embedded) * (1.0 if kind == "int8" else 0.5 + SCALES)


def kv_bytes_per_token(
    layers: int | None, kv_heads: int | None, head_dim: int | None, kv_lora_rank: int | None,
    qk_rope_head_dim: int | None, full_attention_layers: int | None = None,
) -> int | None:  # fmt: skip
    """Bytes of one token over all layers, in 16 bit, before tensor parallelism splits it; None where it is unknown.

    MLA keeps one compressed row a layer, of which every rank has a copy.
    """
    counted = full_attention_layers or layers
    if not counted:
        return None
    if kv_lora_rank:
        return counted * (kv_lora_rank + (qk_rope_head_dim or 0)) * 2
    if not kv_heads or not head_dim:
        return None
    return 2 * counted * kv_heads * head_dim * 2


def least_npus(weights: float | None, kv_bytes: int, split: int, card_gb: int) -> int | None:
    """The smallest count of NPUs with `card_gb` GiB that holds weights and some context; None where that is unknown,
    or more than any machine has. KV is split over at most `split` NPUs."""
    if weights is None:
        return None
    room, context = SHARE * card_gb * GIB, kv_bytes * TOKENS / 1e9
    for count in COUNTS:
        if weights / count + context / min(count, split) + WORKING_GB <= room:
            return count
    return None
