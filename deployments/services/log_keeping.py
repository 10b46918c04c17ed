"""How long logs are kept: by what became of their job, and by what all of them take together.

A log that goes leaves its row, with verdict, steps, report and diagnosis; `pruned_at` says when its lines went.
Lines go a few chunks at a time, each time in a transaction of its own, so that no writer waits for long.
"""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, TypeVar

from django.conf import settings
from django.db.models import Q, QuerySet, Sum
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from console.errors import ConsoleError
from deployments.models import AgentLog, Attempt, EngineLog, JobState
from deployments.services.logs import Head

CHUNKS = 100  # deleted at once: at most 13 MB
PAUSE_S = 0.01  # between two of them: SQLite's write lock is not fair
HEADS = 50
GB = 1000**3
LOOKS = Q(job__kind="check") | Q(job__kind__endswith="_look")
# What a viewer reads of a log whose lines were deleted.
NO_LINES: dict[str, Any] = {"first": 1, "n": 0, "total": 0, "text": "", "done": True}
Row = TypeVar("Row", Attempt, EngineLog, AgentLog)
FAILED = Q(state=JobState.FAILED)


def prune() -> int:
    """How many logs lost their lines."""
    now = timezone.now()
    pruned = sum(empty(head) for head in _in_turn(old_attempts(now)))
    over = total() - settings.LOG_MAX_GB * GB
    for head in by_turn() if over > 0 else ():
        if over <= 0:
            break
        over -= head.kept_bytes
        pruned += empty(head)
    return pruned


def total() -> int:
    """Bytes that all logs take."""
    return sum(
        rows.aggregate(sum=Sum("kept_bytes"))["sum"] or 0
        for rows in (Attempt.objects, EngineLog.objects, AgentLog.objects)
    )


def kept_attempts() -> QuerySet[Attempt]:
    """Runs that have ended, and still have lines."""
    return Attempt.objects.filter(done=True, kept_bytes__gt=0).order_by("ended_at", "pk")


def old_attempts(now: datetime) -> QuerySet[Attempt]:
    """Those whose time is over. Servers say when a run ended, and their clocks may be wrong: our own has a say, too."""
    old = Q()
    for which, days in ((LOOKS, settings.LOG_DAYS_LOOKS), (FAILED & ~LOOKS, settings.LOG_DAYS_FAILED),
                        (~FAILED & ~LOOKS, settings.LOG_DAYS)):  # fmt: skip
        limit = now - timedelta(days=days)
        old |= which & Q(job__created_at__lt=limit) & (Q(ended_at=None) | Q(ended_at__lt=limit))
    return kept_attempts().filter(old)


def by_turn() -> Iterator[Head]:
    """What goes first where all logs take too much: agents, runs that did not fail, engines, then failed runs."""
    agents = AgentLog.objects.filter(done=True, kept_bytes__gt=0).order_by("ended_at", "pk")
    engines = EngineLog.objects.filter(done=True, kept_bytes__gt=0).order_by("ended_at", "pk")
    failed = kept_attempts().filter(FAILED)
    return chain(_in_turn(agents), _in_turn(kept_attempts().exclude(FAILED)), _in_turn(engines), _in_turn(failed))


def _in_turn(rows: QuerySet[Row]) -> Iterator[Row]:
    """Rows a few at a time, for each is emptied before the next are asked for."""
    seen = ""
    while found := list(rows[:HEADS]):
        if found[0].pk == seen:
            return
        seen = found[0].pk
        yield from found


def empty(head: Head) -> bool:
    """Its lines go. The row says so before the first of them does: should we die in between, the next turn goes on."""
    rows = type(head)._default_manager.filter(pk=head.pk)
    rows.filter(pruned_at=None).update(pruned_at=timezone.now())
    while keys := list(head.chunks.order_by("first").values_list("pk", flat=True)[:CHUNKS]):
        head.chunks.filter(pk__in=keys).delete()
        time.sleep(PAUSE_S)
    rows.update(kept_bytes=0)
    return True


def said(head: Head | None) -> str:
    """What a page says in place of a log whose lines were deleted; '' for one that is there."""
    if head is None or head.pruned_at is None:
        return ""
    return _("Its log was deleted on %(day)s. Kept were the verdict, steps and diagnosis.") % {
        "day": date_format(timezone.localtime(head.pruned_at), "Y-m-d")
    }


def check_any_kept(heads: Sequence[Attempt | EngineLog]) -> None:
    """Raises as `check_kept` does where there were logs and the lines of all of them were deleted."""
    if all(head.pruned_at for head in heads):
        check_kept(heads[0] if heads else None)


def check_kept(head: Head | None) -> None:
    """Raises ConsoleError (410) where the lines of a log were deleted."""
    check_left(said(head))


def check_left(gone: str) -> None:
    """The same of what `said` says."""
    if gone:
        do = _("How long logs are kept stands on the page “Storage”.")
        raise ConsoleError(gone, do, code="log_deleted", status=410)
