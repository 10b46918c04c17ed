"""What keys used: totals by day, for pages, REST and CSV. They come by gateway_heard.py."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.db.models import QuerySet, Sum
from django.utils import timezone

from deployments.models import GatewayKey, KeyUsage

FIELDS = ("requests", "failed", "prompt_tokens", "completion_tokens")
MOST_DAYS = 400
DAYS = 30
HEAD = ("day", "key", "key_id", "owner", "deployment", *FIELDS)


@dataclass(frozen=True)
class Used:
    """One key's: totals of the days asked for, and the tokens of each of the last 14, oldest first."""

    key: GatewayKey
    requests: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    bars: list[int]

    @property
    def drawn(self) -> list[tuple[int, int, int]]:
        """(x, y, height) of the bars of days with tokens, in a box of 84 by 24."""
        most = max(self.bars, default=0)
        tall = [(n * 6, max(1, round(24 * tokens / most))) for n, tokens in enumerate(self.bars) if tokens]
        return [(x, 24 - height, height) for x, height in tall]


def since(days: int) -> date:
    return timezone.localdate() - timedelta(days=max(1, min(days, MOST_DAYS)) - 1)


def rows(days: int = DAYS, deployment: str = "") -> QuerySet[KeyUsage]:
    """Newest day first."""
    found = KeyUsage.objects.filter(day__gte=since(days)).select_related("key", "deployment")
    found = found.filter(deployment__name=deployment) if deployment else found
    return found.order_by("-day", "deployment__name", "key")


def by_key(keys: Iterable[GatewayKey], days: int = DAYS) -> list[Used]:
    """In the order of the keys."""
    every = list(keys)
    sums = {name: Sum(name) for name in FIELDS}
    of_key = KeyUsage.objects.filter(key__in=every)
    summed = of_key.filter(day__gte=since(days)).order_by().values("key").annotate(**sums)
    totals = {key: dict(zip(FIELDS, row, strict=True)) for key, *row in summed.values_list("key", *FIELDS)}
    bars: dict[tuple[int, date], int] = {}
    for key, day, p, c in of_key.filter(day__gte=since(14)).values_list(
        "key", "day", "prompt_tokens", "completion_tokens"
    ):
        bars[key, day] = bars.get((key, day), 0) + p + c
    first = since(14)
    dates = [first + timedelta(days=n) for n in range(14)]
    nothing = dict.fromkeys(FIELDS, 0)
    return [
        Used(key, **totals.get(key.pk, nothing), bars=[bars.get((key.pk, one), 0) for one in dates]) for key in every
    ]


def as_json(found: Iterable[KeyUsage]) -> list[dict[str, Any]]:
    return [
        {
            "day": row.day.isoformat(),
            "key": row.key.name,
            "key_id": row.key_id,
            "owner": row.key.owner,
            "deployment": row.deployment.name,
            **{name: getattr(row, name) for name in FIELDS},
        }
        for row in found
    ]
