"""What people call a way of quantizing, made into the types of msModelSlim: w8a8, w8a16, …"""

import re
from typing import NamedTuple

from deployments.steps import Text

TYPES = (
    "w8a8", "w8a16", "w4a8", "w4a4", "w8a8c8", "w4a8c8", "w4a4c8", "w8a8s", "w16a16s", "w8a8f8", "w4a4f8", "w4a4f4",
)  # fmt: skip
PATTERN = re.compile(r"w(\d+)a(\d+)(c8|f[48])?(s?)")
# What the guide's table of settings says, as `weight_bits 8, act_bits 8` or `weight_bits: 8 act_bits=8`.
BITS = re.compile(r"weight_?bits\W{1,4}(\d+)\D{1,20}act(?:ivation)?_?bits\W{1,4}(\d+)", re.IGNORECASE)


class Word(NamedTuple):
    """`note` says gently what was meant, where other words than the tool's own were used."""

    type: str
    note: Text | None = None


class NoType(ValueError):
    """Words that stand for no type of the tool; `text` says why and what to take."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


def read(words: str) -> Word:
    """Raises NoType."""
    plain = words.strip().lower().replace("-", "_")
    if plain in TYPES:
        return Word(plain)
    if plain in ("w8a8_dynamic", "w8a8dynamic", "w4a8_dynamic", "w4a8dynamic", "w4a4_dynamic", "w8a8_mix"):
        kind = plain[:4]
        raise NoType(
            Text(
                f"msModelSlim 没有“{words.strip()[:40]}”这个类型：动态或静态由配方决定。请选 {kind}，页面会显示将使用"
                "的配方。",
                f"msModelSlim has no type “{words.strip()[:40]}”: whether activations are scaled dynamically or "
                "statically is "
                f"decided by the recipe. Choose {kind}; the page shows which recipe is taken.",
            )
        )
    if plain in ("w4a16", "w4a16s"):
        raise NoType(
            Text(
                "w4a16 只在 msModelSlim 的旧脚本里（Qwen2.5-72B），一键命令没有它。请选 w8a16（精度优先）或 w4a8（体"
                "积优先）。",
                "w4a16 exists in old scripts of msModelSlim only (Qwen2.5-72B); the one-click command has none. Choose "
                "w8a16 for accuracy, or w4a8 for size.",
            )
        )
    if plain in ("weight_quant", "int8", "quant"):
        return Word("w8a8", _note("WEIGHT_QUANT" if plain == "weight_quant" else words.strip(), "w8a8"))
    if found := BITS.search(words):
        made = f"w{found[1]}a{found[2]}"
        if made in TYPES:
            return Word(made, _note(f"weight_bits {found[1]}, act_bits {found[2]}", made))
    raise NoType(
        Text(
            f"没有“{words.strip()[:40]}”这个量化类型。可选：{'、'.join(TYPES)}。",
            f"There is no type “{words.strip()[:40]}”. The tool has: {', '.join(TYPES)}.",
        )
    )


def _note(words: str, made: str) -> Text:
    return Text(
        f"“{words}”在 msModelSlim 里叫 {made}，将按 {made} 量化。",
        f"What the guide calls “{words}” is {made} in msModelSlim, and is taken as that.",
    )
