"""Which diagnoses there were in some days: how often each, on which day, server, stack and model, and whether people
said that they were right. A fixed number of queries, whatever there is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, ClassVar, NamedTuple

from django.db.models import Count, Max, Q, QuerySet
from django.utils import timezone

from deployments.services import paging
from monitoring.models import Diagnosis
from monitoring.services import diagnosed_places, diagnosing

DAYS = (1, 7, 30, 90)
RULES_SHOWN, PLACES_SHOWN, CASES_SHOWN, SERIES = 50, 10, 15, 5
UNKNOWN = "-"  # in an address: of which nobody knows what was wrong
PLACES = ("server", "stack", "model", "kind")


@dataclass(frozen=True)
class Filters(paging.Filters):
    days: int = 7
    found: str = ""
    server: str = ""
    stack: str = ""
    model: str = ""
    kind: str = ""

    PLACE: ClassVar[Mapping[str, Any]] = {"days": 7}

    @property
    def chosen(self) -> list[tuple[str, str]]:
        """(field, value) of those that exclude something."""
        return [(name, getattr(self, name)) for name in ("found", *PLACES) if getattr(self, name)]

    def address(self, **more: Any) -> str:
        return super().address(**{"days": self.days, **more})


class Row(NamedTuple):
    """One rule: how often, when last, what people said, and the newest case."""

    found: str
    n: int
    last: Any
    right: int
    wrong: int
    case: Diagnosis | None

    @property
    def share_right(self) -> int | None:
        """Of those that were judged, in %; None where nobody has."""
        judged = self.right + self.wrong
        return round(100 * self.right / judged) if judged else None


@dataclass(frozen=True)
class Found:
    filters: Filters
    total: int
    right: int
    wrong: int
    rows: Sequence[Row]
    days: Sequence[tuple[date, Mapping[str, int]]]  # oldest first, one for each day
    places: Mapping[str, Sequence[tuple[str, int]]]  # by field: (value, how often)
    cases: Sequence[Diagnosis] = field(default_factory=list)

    @property
    def share_right(self) -> int | None:
        judged = self.right + self.wrong
        return round(100 * self.right / judged) if judged else None

    @property
    def series(self) -> list[str]:
        """The rules that a plot tells apart."""
        return [row.found for row in self.rows[:SERIES]]


def read(given: Mapping[str, str]) -> Filters:
    """What an address asks for; what makes no sense excludes nothing."""
    days = given.get("days", "")
    words = {name: paging.text(given, name, 200) for name in ("found", *PLACES)}
    return Filters(days=int(days) if days in map(str, DAYS) else 7, **words)


def chosen(filters: Filters) -> QuerySet[Diagnosis]:
    rows = Diagnosis.objects.filter(day__gte=_first(filters))
    if filters.found:
        rows = rows.filter(found="" if filters.found == UNKNOWN else filters.found)
    return rows.filter(**{name: getattr(filters, name) for name in PLACES if getattr(filters, name)})


def _first(filters: Filters) -> date:
    """The first day that is shown; of one day it is the one before, for nights belong to two."""
    return timezone.localdate() - timedelta(days=max(1, filters.days - 1))


def look(filters: Filters) -> Found:
    """Eight queries."""
    rows = chosen(filters).order_by()
    told = Count("pk", filter=Q(right=True)), Count("pk", filter=Q(right=False))
    sums = rows.aggregate(n=Count("*"), yes=told[0], no=told[1])
    each = rows.values("found").annotate(n=Count("*"), last=Max("made_at"), newest=Max("pk"), yes=told[0], no=told[1])
    rules = list(each.order_by("-n", "found")[:RULES_SHOWN])
    newest = diagnosing.rows().in_bulk([one["newest"] for one in rules])
    shown = [
        Row(one["found"], one["n"], one["last"], one["yes"], one["no"], newest.get(one["newest"])) for one in rules
    ]
    places = {
        name: [
            (one[name], one["n"])
            for one in rows.values(name).annotate(n=Count("*")).order_by("-n", name)[:PLACES_SHOWN]
            if one[name]
        ]
        for name in PLACES[:3]
    }
    cases = diagnosing.rows().filter(pk__in=rows.order_by("-made_at", "-pk").values("pk")[:CASES_SHOWN])
    return Found(
        filters,
        sums["n"],
        sums["yes"],
        sums["no"],
        shown,
        _by_day(rows, filters),
        places,
        list(cases.order_by("-made_at")),
    )


def _by_day(rows: QuerySet[Diagnosis], filters: Filters) -> list[tuple[date, dict[str, int]]]:
    first, today = _first(filters), timezone.localdate()
    days: dict[date, dict[str, int]] = {first + timedelta(days=n): {} for n in range((today - first).days + 1)}
    for one in rows.values("day", "found").annotate(n=Count("*")):
        if one["day"] in days:
            days[one["day"]][one["found"]] = one["n"]
    return sorted(days.items())


def as_json(found: Found) -> dict[str, Any]:
    return {
        "days": found.filters.days,
        "total": found.total,
        "judged": {"right": found.right, "wrong": found.wrong, "share_right_pct": found.share_right},
        "diagnoses": [
            {"id": row.found or None, "count": row.n, "last": row.last.isoformat(), "right": row.right,
             "wrong": row.wrong, "share_right_pct": row.share_right}
            for row in found.rows
        ],
        "by_day": [{"day": day.isoformat(), "counts": counts} for day, counts in found.days],
        **{f"{name}s": [{"name": value, "count": n} for value, n in found.places[name]] for name in found.places},
        "cases": [case_json(one) for one in found.cases],
    }  # fmt: skip


def case_json(row: Diagnosis) -> dict[str, Any]:
    best = row.findings[0] if row.findings else None
    return {
        "id": row.pk,
        "found": row.found or None,
        "made_at": row.made_at.isoformat(),
        "server": row.server,
        "kind": row.kind,
        "stack": row.stack or None,
        "model": row.model or None,
        "log": row.attempt_id or row.piece_id,
        "line": best["line"] if best else None,
        "text": best["text"] if best else None,
        "right": row.right,
        "note": row.note,
        "link": diagnosed_places.of_line(row),
    }


CSV_HEAD = (
    "id",
    "made_at",
    "found",
    "server",
    "kind",
    "stack",
    "model",
    "log",
    "line",
    "text",
    "right",
    "note",
    "link",
)


def csv_rows(filters: Filters) -> Iterator[list[Any]]:
    """Newest first, in bounded memory."""
    for row in diagnosing.rows().filter(pk__in=chosen(filters).values("pk")).order_by("-made_at").iterator(500):
        told = case_json(row)
        yield [told[name] for name in CSV_HEAD]
