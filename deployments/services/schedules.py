"""Replicas by day and time: a deployment's `schedule` is [{"at": "08:00", "days": [0…6], "replicas": 4}], Monday is 0.

Times are local, in settings.TIME_ZONE. A point that is due sets the number once; a number set by hand holds until the
next point. Where clocks are put forward a point that does not exist is due as soon as it is past.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from console.errors import Invalid
from deployments.models import Deployment

TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
MOST_POINTS = 50
MOST_REPLICAS = 1000


def check(points: Sequence[Any]) -> list[dict[str, Any]]:
    """The schedule as it is kept. Raises Invalid in words."""
    if len(points) > MOST_POINTS:
        raise Invalid(
            _("A schedule has at most %(most)s entries.") % {"most": MOST_POINTS}, _("Leave some out."),
            code="invalid_schedule",
        )  # fmt: skip
    made = [_point(number, item) for number, item in enumerate(points, start=1)]
    seen = [(day, item["at"]) for item in made for day in item["days"]]
    if len(set(seen)) < len(seen):
        raise Invalid(
            _("Two entries of the schedule name the same day and time."), _("Keep one of them."),
            code="invalid_schedule",
        )  # fmt: skip
    return made


def _point(number: int, item: Any) -> dict[str, Any]:
    given: dict[str, Any] = item if isinstance(item, dict) else {}
    at, days, replicas = given.get("at"), given.get("days"), given.get("replicas")
    right = (
        isinstance(at, str)
        and TIME.fullmatch(at)
        and isinstance(days, list)
        and days
        and all(type(day) is int and 0 <= day <= 6 for day in days)
        and type(replicas) is int
        and 0 <= replicas <= MOST_REPLICAS
    )
    if not right:
        raise Invalid(
            _("Entry %(n)s of the schedule is wrong.") % {"n": number},
            _("Give a time as 08:00, days as 0 (Monday) to 6 (Sunday), and replicas from 0."),
            code="invalid_schedule",
        )
    return {"at": at, "days": sorted(set(days or [])), "replicas": replicas}


def due(deployment: Deployment, now: datetime) -> tuple[datetime, int] | None:
    """(moment, replicas) of the last point that was due after `schedule_at` and until now, or None."""
    found = [
        point
        for days_ago in range(8)
        for point in _of_day(deployment.schedule, now - timedelta(days=days_ago))
        if deployment.schedule_at < point[0] <= now
    ]
    return max(found, default=None)


def next_change(deployment: Deployment, now: datetime) -> dict[str, Any] | None:
    """{"at", "replicas"} of the first point after now, or None where there is none."""
    if not deployment.schedule:
        return None
    found = [
        point
        for days in range(8)
        for point in _of_day(deployment.schedule, now + timedelta(days=days))
        if point[0] > now
    ]
    at, replicas = min(found)
    return {"at": at.isoformat(timespec="seconds"), "replicas": replicas}


def _of_day(schedule: Sequence[dict[str, Any]], moment: datetime) -> list[tuple[datetime, int]]:
    """The points of the local day of that moment."""
    day = timezone.localtime(moment)
    made = []
    for item in schedule:
        if day.weekday() in item["days"]:
            hour, minute = item["at"].split(":")
            zone = timezone.get_current_timezone()
            at = datetime(day.year, day.month, day.day, int(hour), int(minute), tzinfo=zone)
            made.append((at, int(item["replicas"])))
    return made
