"""Make longer rows of history out of shorter ones, and let what is old go. Run every five minutes, or late, or twice.

Finished windows only. The last few are made anew each time, those of two hours once an hour: some rows come late.
"""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Max, Min, QuerySet
from django.utils import timezone

from monitoring import history
from monitoring.models import Minute, Rollup

MINUTE_S, SHORT_S, LONG_S = 60, 300, 3600
AGAIN, AGAIN_HOURLY = 3, 24  # windows of SHORT_S that are made anew
WRITTEN = 500  # rows in one transaction
DELETED = 5000


def roll(now: datetime | None = None) -> int:
    """Make what is due; how many rows were written."""
    now = now or timezone.now()
    again = AGAIN_HOURLY if now.minute < SHORT_S // 60 else AGAIN
    return _roll(SHORT_S, Minute.objects.all(), now, again) + _roll(
        LONG_S, Rollup.objects.filter(step_s=SHORT_S), now, 2
    )


def _roll(step_s: int, rows: QuerySet[Any], now: datetime, again: int) -> int:
    step = timedelta(seconds=step_s)
    end = floor(now, step_s)
    last = Rollup.objects.filter(step_s=step_s).aggregate(last=Max("at"))["last"]
    if last is None:
        last = rows.aggregate(first=Min("at"))["first"]
        at = end if last is None else floor(last, step_s)
    else:
        at = min(last, end - step) - (again - 1) * step
    made = 0
    while at < end:
        made += _window(step_s, at, rows.filter(at__gte=at, at__lt=at + step))
        at += step
    return made


def _window(step_s: int, at: datetime, rows: QuerySet[Any]) -> int:
    sums: defaultdict[int, history.Sums] = defaultdict(history.Sums)
    for server_id, data in rows.order_by().values_list("server_id", "data").iterator(chunk_size=2000):
        sums[server_id].add_row(data)
    made = [Rollup(server_id=pk, step_s=step_s, at=at, data=kept.data()) for pk, kept in sums.items()]
    for first in range(0, len(made), WRITTEN):
        Rollup.objects.bulk_create(
            made[first : first + WRITTEN],
            update_conflicts=True,
            unique_fields=["server", "step_s", "at"],
            update_fields=["data"],
        )
    return len(made)


def floor(at: datetime, step_s: int) -> datetime:
    """The beginning of its window."""
    return datetime.fromtimestamp(int(at.timestamp()) // step_s * step_s, UTC)


def kept() -> dict[int, timedelta]:
    """How long rows of each step are kept."""
    return {
        MINUTE_S: timedelta(hours=settings.HISTORY_RAW_HOURS),
        SHORT_S: timedelta(days=settings.HISTORY_5MIN_DAYS),
        LONG_S: timedelta(days=settings.HISTORY_HOUR_DAYS),
    }


def prune() -> int:
    """Old rows go in batches, so that SQLite's one writer is never held for long; how many went."""
    now, times = timezone.now(), kept()
    pruned = _delete(Minute.objects.filter(at__lt=now - times[MINUTE_S]))
    for step_s in (SHORT_S, LONG_S):
        pruned += _delete(Rollup.objects.filter(step_s=step_s, at__lt=now - times[step_s]))
    return pruned


def _delete(rows: QuerySet[Any]) -> int:
    pruned = 0
    while keys := list(rows.order_by().values_list("pk", flat=True)[:DELETED]):
        pruned += rows.model.objects.filter(pk__in=keys)._raw_delete(rows.db)
    return pruned
