"""One packed row per server and minute.

`data` is {"npus": {"<npu>.<chip>": [aicore mean, hbm_used_mb mean, temp_c max, power_w mean]}, "n": samples read}.
None stands for unknown. No row for a minute without a sample: a gap is drawn as a gap.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone

from monitoring.models import Minute

FIELDS = ("aicore", "hbm_used_mb", "temp_c", "power_w")


class MinuteSums:
    """Adds up the samples of one server during one minute."""

    def __init__(self) -> None:
        self.n = 0
        self.sums: dict[str, list[list[float]]] = {}

    def add(self, npus: Iterable[Mapping[str, Any]]) -> None:
        self.n += 1
        for npu in npus:
            kept = self.sums.setdefault(f"{npu['npu']}.{npu['chip']}", [[0.0, 0] for _ in FIELDS])
            for place, field in enumerate(FIELDS):
                amount = npu[field]
                if amount is None:
                    continue
                slot = kept[place]
                slot[0] = (
                    max(slot[0], amount) if field == "temp_c" and slot[1] else slot[0] * (field != "temp_c") + amount
                )
                slot[1] += 1

    def data(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "npus": {
                key: [_result(*pair) for pair in zip(FIELDS, kept, strict=True)] for key, kept in self.sums.items()
            },
        }


def _result(field: str, slot: list[float]) -> float | None:
    total, count = slot
    if not count:
        return None
    return total if field == "temp_c" else round(total / count, 1)


def minute_of(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(int(epoch_s) // 60 * 60, UTC)


def recent(server_id: int, minutes: int) -> list[Minute]:
    """The rows of the last `minutes`, oldest first."""
    since = timezone.now() - timedelta(minutes=minutes)
    return list(Minute.objects.filter(server_id=server_id, at__gte=since).order_by("at"))
