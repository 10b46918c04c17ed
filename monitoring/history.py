"""What was observed, as packed rows: one for each server and minute (`Minute`), and for longer times (`Rollup`).

`data` is {"n": samples, "npus": {"<npu>.<chip>": [a number for each of NPU_FIELDS]}, "engines": {"<replica>": [one for
each of ENGINE_FIELDS]}}, `engines` only where some were heard. None stands for unknown. No row where there was no
sample: a gap is drawn as a gap.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone

from monitoring.models import Minute

NPU_FIELDS = ("aicore", "hbm_used_mb", "temp_c", "power_w")
ENGINE_FIELDS = (
    "running", "waiting", "kv_pct", "generation_tokens_s", "prompt_tokens_s", "ttft_ms", "tpot_ms",
)  # fmt: skip
HIGHEST = {"temp_c", "kv_pct", "ttft_ms", "tpot_ms"}  # of these the highest is kept, of the others the mean
PARTS = {"npus": NPU_FIELDS, "engines": ENGINE_FIELDS}


class Sums:
    """Adds up samples, or rows of samples, of one server during one minute or longer."""

    def __init__(self) -> None:
        self.n = 0
        self.parts: dict[str, dict[str, list[tuple[float, float] | None]]] = {part: {} for part in PARTS}

    def add(self, npus: Iterable[Mapping[str, Any]], engines: Mapping[int, Mapping[str, Any]] | None = None) -> None:
        """One sample; of each engine {name: number or None}."""
        self.n += 1
        for npu in npus:
            self._add("npus", f"{npu['npu']}.{npu['chip']}", [npu[name] for name in NPU_FIELDS], 1)
        for replica, metrics in (engines or {}).items():
            self._add("engines", str(replica), [metrics.get(name) for name in ENGINE_FIELDS], 1)

    def add_row(self, data: Mapping[str, Any]) -> None:
        """A row of a shorter time."""
        n = data["n"]
        self.n += n
        for part in PARTS:
            for key, amounts in data.get(part, {}).items():
                self._add(part, key, amounts, n)

    def _add(self, part: str, key: str, amounts: list[float | None], weight: float) -> None:
        """Of each number (sum, weight), of the highest ones (highest, 1); None until one is known."""
        kept = self.parts[part].setdefault(key, [None] * len(amounts))
        for place, (name, amount) in enumerate(zip(PARTS[part], amounts, strict=True)):
            if amount is None:
                continue
            before = kept[place]
            if name in HIGHEST:
                kept[place] = (amount if before is None else max(before[0], amount), 1)
            else:
                total, seen = before or (0.0, 0.0)
                kept[place] = (total + amount * weight, seen + weight)

    def data(self) -> dict[str, Any]:
        made: dict[str, Any] = {"n": self.n}
        for part, rows in self.parts.items():
            if rows or part == "npus":
                made[part] = {key: [_number(slot) for slot in kept] for key, kept in rows.items()}
        return made


def _number(slot: tuple[float, float] | None) -> float | None:
    return None if slot is None else round(slot[0] / slot[1], 1)


def merged(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """One row of several, each counting by its samples."""
    sums = Sums()
    for row in rows:
        sums.add_row(row)
    return sums.data()


def minute_of(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(int(epoch_s) // 60 * 60, UTC)


def recent(server_id: int, minutes: int) -> list[Minute]:
    """The rows of the last `minutes`, oldest first."""
    since = timezone.now() - timedelta(minutes=minutes)
    return list(Minute.objects.filter(server_id=server_id, at__gte=since).order_by("at"))
