"""Read history as columns on one grid of times, for plots, tables and files. Where nothing was heard stands None."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from console.errors import Invalid
from deployments.models import Server
from monitoring import history
from monitoring.models import Minute, Rollup
from monitoring.services import rollups

MOST_POINTS = 1500
STEPS = (rollups.MINUTE_S, rollups.SHORT_S, rollups.LONG_S)
LONGEST = timedelta(days=3660)
SLACK = timedelta(minutes=5)  # rows go once an hour: what is kept for a day serves “the last day”
SPAN_S = 6 * 3600  # that is shown where nobody asks for another


@dataclass(frozen=True)
class Series:
    """`at`: epoch seconds at which each window begins, `step_s` apart. `npus` and `engines`: {key: {field: numbers}},
    each as long as `at`."""

    step_s: int
    at: list[int]
    npus: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    engines: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"step_s": self.step_s, "at": self.at, "npus": self.npus, "engines": self.engines}


def read(server: Server, since: datetime, until: datetime) -> Series:
    """Raises Invalid. One query."""
    now = timezone.now()
    until = min(until, now)
    if since >= until:
        raise Invalid(_("The time ends before it begins."), _("Choose a beginning before the end, and before now."))
    if until - since > LONGEST:
        raise Invalid(_("The time is longer than ten years."), _("Choose a shorter one."))
    step_s = step_for(since, until, now)
    base_s = max(one for one in STEPS if one <= step_s and step_s % one == 0)
    first = rollups.floor(since, step_s)
    at = list(range(int(first.timestamp()), int(until.timestamp()), step_s))
    series = Series(step_s, at)
    for place, data in _windows(_rows(server, base_s, first, until), int(first.timestamp()), step_s, base_s):
        _put(series.npus, data.get("npus", {}), history.NPU_FIELDS, place, len(at))
        _put(series.engines, data.get("engines", {}), history.ENGINE_FIELDS, place, len(at))
    return series


def step_for(since: datetime, until: datetime, now: datetime) -> int:
    """Seconds of one point: the finest that is still kept for all of the time, and at most MOST_POINTS of them."""
    kept = rollups.kept()
    span = (until - since).total_seconds()
    for step in STEPS:
        if since >= now - kept[step] - SLACK and span <= step * MOST_POINTS:
            return step
    times = -(-span // (STEPS[-1] * MOST_POINTS))
    return STEPS[-1] * max(1, int(times))


def _rows(server: Server, base_s: int, since: datetime, until: datetime) -> Iterator[tuple[datetime, dict[str, Any]]]:
    rows: Any = Minute.objects if base_s == rollups.MINUTE_S else Rollup.objects.filter(step_s=base_s)
    found = rows.filter(server=server, at__gte=since, at__lt=until).order_by("at").values_list("at", "data")
    yield from found.iterator(chunk_size=2000)


def _windows(
    rows: Iterable[tuple[datetime, dict[str, Any]]], first: int, step_s: int, base_s: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(place on the grid, data): rows of the same window as one."""
    if step_s == base_s:
        yield from ((int(at.timestamp() - first) // step_s, data) for at, data in rows)
        return
    place = -1
    together: list[dict[str, Any]] = []
    for at, data in rows:
        here = int(at.timestamp() - first) // step_s
        if here != place and together:
            yield place, history.merged(together)
            together = []
        place = here
        together.append(data)
    if together:
        yield place, history.merged(together)


def _put(
    columns: dict[str, dict[str, list[float | None]]], rows: dict[str, list[float | None]], names: tuple[str, ...],
    place: int, length: int,
) -> None:  # fmt: skip
    for key, amounts in rows.items():
        kept = columns.get(key)
        if kept is None:
            kept = columns[key] = {name: [None] * length for name in names}
        for name, amount in zip(names, amounts, strict=False):
            kept[name][place] = amount


def asked(given: Any) -> tuple[datetime, datetime]:
    """`span` in seconds up to now, or `since` and `until` in epoch seconds. Raises Invalid."""
    now = timezone.now()
    try:
        if given.get("since"):
            until = float(given.get("until") or now.timestamp())
            return datetime.fromtimestamp(float(given["since"]), UTC), datetime.fromtimestamp(until, UTC)
        span = float(given.get("span") or SPAN_S)
        if not 0 < span <= LONGEST.total_seconds():
            raise ValueError
        return now - timedelta(seconds=span), now
    except (ValueError, OverflowError, OSError) as error:
        raise Invalid(
            _("“%(text)s” is no time.") % {"text": str(given.get("since") or given.get("span"))[:40]},
            _("Give since= and until= in seconds since 1970, or span= in seconds."),
        ) from error
