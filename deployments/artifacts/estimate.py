"""How much memory and disk quantizing takes, as a range: from the model's numbers, without looking at any weights."""

import re
from typing import NamedTuple

from deployments.artifacts.recipes import WHOLE

BITS = {"BF16": 16, "F16": 16, "F32": 32, "F8_E4M3": 8, "I8": 8}
KEPT_SHARE = 0.4  # of the layers, which recipes may leave in float: the larger end of the size of what comes out


class Range(NamedTuple):
    """Bytes."""

    low: int
    high: int


def memory(weight_bytes: int, layers: int | None, embedding: int, mode: str) -> Range:
    """Two to three times the whole model, or one layer and the embedding that lies beside it."""
    part = weight_bytes if mode == WHOLE or not layers else max(0, weight_bytes - embedding) // layers + embedding // 2
    return Range(2 * part, 3 * part)


def embedding(vocab: int | None, hidden: int | None, dtype: str, *, tied: bool) -> int:
    """Bytes of the embedding and, unless both are one, of the head: they stay in float."""
    return (vocab or 0) * (hidden or 0) * BITS.get(dtype, 16) // 8 * (1 if tied else 2)


def output(weight_bytes: int, kept: int, dtype: str, quant_type: str) -> Range:
    """Bytes of the weights that come out; `kept` are those that stay in float."""
    found = re.match(r"w(\d+)a", quant_type)
    share = min(1.0, int(found[1]) / BITS.get(dtype, 16)) if found else 1.0
    rest = max(0, weight_bytes - kept)
    return Range(kept + int(rest * share), kept + int(rest * (share + (1 - share) * KEPT_SHARE)))
