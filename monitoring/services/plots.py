"""What the page of a server's history draws: columns of its NPUs and engines, marks of what happened, other servers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, Q
from django.urls import reverse
from django.utils.translation import gettext as _

from console.language import pick
from console.models import Alert
from deployments.models import JobState, Replica, Server
from deployments.templatetags.jobs import kind_title
from monitoring import history
from monitoring.services import series

MOST_MARKS = 200  # of each kind, the newest
MOST_OTHERS = 4


@dataclass(frozen=True)
class Mark:
    """Something that happened from `at` to `until` (None: it goes on, or was a moment); epoch seconds."""

    kind: str
    at: float
    until: float | None
    text: str
    link: str
    look: str


def whole(server: Server, since: datetime, until: datetime, others: Sequence[Server] = ()) -> dict[str, Any]:
    """JSON for the page. Raises Invalid."""
    found = series.read(server, since, until)
    names = {str(one.pk): f"{one.deployment.name} #{one.n}" for one in _replicas(found.engines)}
    return {
        **found.as_json(),
        "engine_names": names,
        "marks": [vars(one) for one in marks(server, since, until)],
        "others": {one.name: together(series.read(one, since, until)) for one in others[:MOST_OTHERS]},
        "together": together(found) if others else None,
    }


def _replicas(engines: Iterable[str]) -> Iterable[Replica]:
    keys = [int(key) for key in engines]
    return (
        Replica.objects.filter(pk__in=keys).select_related("deployment").only("n", "deployment__name") if keys else ()
    )


def together(found: series.Series) -> dict[str, list[float | None]]:
    """A whole server: mean of AI Core, sum of memory and power, the hottest NPU."""
    folds = {"aicore": _mean, "hbm_used_mb": sum, "temp_c": max, "power_w": sum}
    columns = list(found.npus.values())
    return {name: _folded([one[name] for one in columns], folds[name], len(found.at)) for name in history.NPU_FIELDS}


def _mean(amounts: Sequence[float]) -> float:
    return round(sum(amounts) / len(amounts), 1)


def _folded(columns: Sequence[Sequence[float | None]], fold: Any, length: int) -> list[float | None]:
    if not columns:
        return [None] * length
    known = ([one for one in row if one is not None] for row in zip(*columns, strict=True))
    return [fold(row) if row else None for row in known]


def marks(server: Server, since: datetime, until: datetime) -> list[Mark]:
    """Jobs, replicas and alerts of that time, oldest first. Three queries."""
    during = Q(started_at__lt=until) & (Q(ended_at__gt=since) | Q(ended_at=None))
    found = [*_jobs(server, during), *_of_replicas(server, since, until), *_alerts(server, during)]
    return sorted(found, key=lambda one: one.at)


def _jobs(server: Server, during: Q) -> list[Mark]:
    rows = server.jobs.filter(during).exclude(started_at=None).order_by("-pk")[:MOST_MARKS]
    looks = {JobState.SUCCEEDED: "ok", JobState.FAILED: "critical", JobState.LOST: "critical"}
    return [
        Mark(
            "job", row.started_at.timestamp(), _epoch(row.ended_at), f"#{row.pk} {kind_title(row.kind)}",
            reverse("deployments:job-detail", args=[row.pk]), looks.get(JobState(row.state), "info"),
        )
        for row in rows if row.started_at
    ]  # fmt: skip


def _of_replicas(server: Server, since: datetime, until: datetime) -> list[Mark]:
    rows = Replica.objects.filter(server=server, created_at__lt=until).filter(Q(ended_at=None) | Q(ended_at__gt=since))
    return [
        Mark(
            "replica", row.created_at.timestamp(), _epoch(row.ended_at),
            _("%(name)s, replica %(n)s") % {"name": row.deployment.name, "n": row.n},
            reverse("deployments:deployment-detail", args=[row.deployment.name]), "info",
        )
        for row in rows.select_related("deployment").order_by("-pk")[:MOST_MARKS]
    ]  # fmt: skip


def _alerts(server: Server, during: Q) -> list[Mark]:
    rows = Alert.objects.filter(
        during, Q(subject=f"server:{server.pk}") | Q(subject__startswith=f"server:{server.pk}:")
    )
    return [
        Mark("alert", row.started_at.timestamp(), _epoch(row.ended_at), pick((row.what[0], row.what[1])), row.link,
             "critical" if row.severity == "critical" else "warning")
        for row in rows.order_by(F("started_at").desc())[:MOST_MARKS]
    ]  # fmt: skip


def _epoch(at: datetime | None) -> float | None:
    return at.timestamp() if at else None


def csv_rows(found: series.Series) -> Iterable[list[Any]]:
    """A row for each time and NPU."""
    for place, at in enumerate(found.at):
        for key, columns in sorted(found.npus.items()):
            yield [at, key, *(columns[name][place] for name in history.NPU_FIELDS)]
