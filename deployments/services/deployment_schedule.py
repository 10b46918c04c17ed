"""The schedule of a deployment as a page shows it and a form sends it. What it means: services/schedules.py."""

from datetime import datetime
from typing import Any, NamedTuple

from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console import clock
from deployments.models import Deployment
from deployments.services import schedules

EMPTY_ROWS = 2
MOST_ROWS = 50
DAYS = tuple(
    gettext_lazy(word) for word in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
)  # fmt: skip


class Row(NamedTuple):
    at: str
    days: str
    replicas: int


class Field(NamedTuple):
    """One line of the form; `days`: (number, word, whether it is ticked)."""

    n: int
    at: str
    days: list[tuple[int, str, bool]]
    replicas: str


def rows(schedule: list[dict[str, Any]]) -> list[Row]:
    """By time, the days in words."""
    made = [Row(one["at"], words(one["days"]), one["replicas"]) for one in schedule]
    return sorted(made, key=lambda row: (row.at, row.days))


def words(days: list[int]) -> str:
    """ "every day", "Mon–Fri", or the days one by one."""
    if len(days) == 7:
        return _("every day")
    if len(days) > 2 and days == list(range(days[0], days[-1] + 1)):
        return f"{DAYS[days[0]]}–{DAYS[days[-1]]}"
    return ", ".join(str(DAYS[day]) for day in days)


def next_change(deployment: Deployment) -> dict[str, Any] | None:
    """{"at": words, "replicas"} of the next point, None where there is none."""
    found = schedules.next_change(deployment, timezone.now())
    if found is None:
        return None
    return {**found, "at": clock.words(datetime.fromisoformat(found["at"]), clock.SHORT)}


def fields(schedule: list[dict[str, Any]]) -> list[Field]:
    """A line for each entry, and two empty ones."""
    made = [_field(n, one) for n, one in enumerate(schedule)]
    empty = {"at": "", "days": [], "replicas": ""}
    return made + [_field(len(made) + n, empty) for n in range(EMPTY_ROWS)]


def _field(n: int, one: dict[str, Any]) -> Field:
    return Field(n, str(one["at"]), [(day, str(word), day in one["days"]) for day, word in enumerate(DAYS)],
                 str(one["replicas"]))  # fmt: skip


def read(given: QueryDict) -> list[dict[str, Any]]:
    """What was sent, line by line; empty lines are left out, no days means every day. It is not checked here."""
    made = []
    for n in range(MOST_ROWS + EMPTY_ROWS):
        at, number = given.get(f"at-{n}", "").strip(), given.get(f"replicas-{n}", "").strip()
        if not at and not number:
            continue
        days = [int(day) for day in given.getlist(f"days-{n}") if day.isascii() and day.isdigit() and len(day) == 1]
        replicas = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else None
        made.append({"at": at[:5], "days": sorted(set(days)) or list(range(7)), "replicas": replicas})
    return made
