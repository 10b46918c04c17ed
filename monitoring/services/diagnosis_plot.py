"""The bars of the page of diagnoses: one for each day, divided by what was found. Numbers for an SVG, no markup."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

WIDE, HIGH, GAP = 720.0, 160.0, 0.22  # GAP: of a day's width, between two bars
TICKS = 6


@dataclass(frozen=True)
class Part:
    """One rule's part of a bar; `css` is its place in the legend."""

    css: str
    y: float
    height: float
    found: str
    n: int


@dataclass(frozen=True)
class Bar:
    day: date
    x: float
    width: float
    total: int
    parts: Sequence[Part]
    tick: bool  # whether its day is written below

    @property
    def middle(self) -> float:
        return round(self.x + self.width / 2, 1)


@dataclass(frozen=True)
class Plot:
    bars: Sequence[Bar]
    most: int
    others: bool  # whether some are of none of the series

    @property
    def is_empty(self) -> bool:
        return self.most == 0


def drawn(days: Sequence[tuple[date, Mapping[str, int]]], series: Sequence[str]) -> Plot:
    """`series` from the bottom up, what belongs to none of them on top."""
    most = max((sum(counts.values()) for _day, counts in days), default=0)
    step = WIDE / max(1, len(days))
    each = max(1, -(-len(days) // TICKS))
    bars = [
        Bar(day, round(n * step + step * GAP / 2, 1), round(step * (1 - GAP), 1), sum(counts.values()),
            _parts(counts, series, most), (len(days) - 1 - n) % each == 0)
        for n, (day, counts) in enumerate(days)
    ]  # fmt: skip
    return Plot(bars, most, any(part.css == "other" for bar in bars for part in bar.parts))


def _parts(counts: Mapping[str, int], series: Sequence[str], most: int) -> list[Part]:
    named = [(f"part-{n}", found, counts.get(found, 0)) for n, found in enumerate(series, 1)]
    rest = sum(counts.values()) - sum(n for _css, _found, n in named)
    parts, y = [], HIGH
    for css, found, n in [*named, ("other", "", rest)]:
        if n:
            height = round(HIGH * n / most, 2)
            y = round(y - height, 2)
            parts.append(Part(css, y, height, found, n))
    return parts
