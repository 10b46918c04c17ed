"""What logs take, by kind, and what goes next: the page “Storage” and its REST."""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Min, Sum
from django.utils import timezone

from console import database
from deployments.models import Attempt, EngineLog
from deployments.services import log_keeping

SOON_DAYS = 7
SHOWN = 8


@dataclass(frozen=True)
class Kind:
    """Logs of one kind of job; `kind` is '' for those of engines. `oldest` is when the first of them ended."""

    kind: str
    logs: int
    bytes: int
    oldest: datetime | None


@dataclass(frozen=True)
class Storage:
    """`soon`: logs of jobs that go within SOON_DAYS by their age, `soon_bytes` what they take. `over_bytes`: how much
    goes beside, for all take more than they may. `following`: of which runs lines go first."""

    kinds: list[Kind]
    bytes: int
    most_bytes: int
    soon: int
    soon_bytes: int
    over_bytes: int
    following: list[Attempt]
    space: database.Space


def storage() -> Storage:
    """Six queries, and what the database itself is asked."""
    kinds = sorted(_kinds(), key=lambda kind: -kind.bytes)
    taken, most = sum(kind.bytes for kind in kinds), settings.LOG_MAX_GB * log_keeping.GB
    soon = log_keeping.old_attempts(timezone.now() + timedelta(days=SOON_DAYS))
    figures = soon.order_by().aggregate(count=Count("pk"), sum=Sum("kept_bytes"))
    over = max(0, taken - most)
    rows = log_keeping.kept_attempts().exclude(log_keeping.FAILED) if over else soon
    following = list(rows.select_related("job__server")[:SHOWN])
    sums = figures["count"], figures["sum"] or 0
    return Storage(kinds, taken, most, *sums, over, following, database.space())


def _kinds() -> list[Kind]:
    figures = {"logs": Count("pk"), "bytes": Sum("kept_bytes"), "oldest": Min("ended_at")}
    rows = Attempt.objects.filter(kept_bytes__gt=0).order_by().values("job__kind").annotate(**figures)
    found = [Kind(*row) for row in rows.values_list("job__kind", *figures)]
    engines = EngineLog.objects.filter(kept_bytes__gt=0).aggregate(**figures)
    return [*found, Kind("", engines["logs"], engines["bytes"], engines["oldest"])] if engines["logs"] else found


def days() -> dict[str, int]:
    """The settings by which things go."""
    names = (
        "LOG_DAYS",
        "LOG_DAYS_FAILED",
        "LOG_DAYS_LOOKS",
        "ENGINE_LOG_DAYS",
        "LOG_MAX_GB",
        "JOB_DAYS",
        "REPLICA_DAYS",
    )
    return {name: getattr(settings, name) for name in names}


def as_json(found: Storage) -> dict[str, Any]:
    return {
        "bytes": found.bytes,
        "most_bytes": found.most_bytes,
        "kinds": [{**asdict(kind), "kind": kind.kind or "engine"} for kind in found.kinds],
        "soon": {"days": SOON_DAYS, "logs": found.soon, "bytes": found.soon_bytes},
        "over_bytes": found.over_bytes,
        "following": [{"job": one.job_id, "attempt": one.pk, "bytes": one.kept_bytes} for one in found.following],
        "database": asdict(found.space),
        "settings": days(),
    }
