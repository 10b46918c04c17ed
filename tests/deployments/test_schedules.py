"""Points of a schedule, in local time."""

from datetime import UTC, datetime

import pytest
from django.test import override_settings
from django.utils import timezone, translation

from console.errors import Invalid
from deployments.models import Deployment
from deployments.services import schedules

DAY_AND_NIGHT = [
    {"at": "08:00", "days": [0, 1, 2, 3, 4], "replicas": 4},
    {"at": "20:00", "days": list(range(7)), "replicas": 1},
]
FRIDAY = datetime(2026, 11, 27, 13, 0, tzinfo=UTC)  # 21:00 in Shanghai


def with_schedule(points, since):
    return Deployment(name="a", schedule=points, schedule_at=since)


@pytest.fixture(autouse=True)
def shanghai():
    with override_settings(TIME_ZONE="Asia/Shanghai"), timezone.override(None), translation.override("en"):
        yield


def test_the_last_point_since_it_was_looked_at_is_due():
    made = with_schedule(DAY_AND_NIGHT, FRIDAY.replace(hour=1))
    assert schedules.due(made, FRIDAY) == (datetime(2026, 11, 27, 12, 0, tzinfo=UTC), 1)
    made.schedule_at = schedules.due(made, FRIDAY)[0]
    assert schedules.due(made, FRIDAY) is None


def test_after_a_long_outage_only_the_last_counts():
    made = with_schedule(DAY_AND_NIGHT, FRIDAY.replace(day=1))
    assert schedules.due(made, FRIDAY)[1] == 1


def test_the_next_change_may_be_days_away():
    weekdays = with_schedule([DAY_AND_NIGHT[0]], FRIDAY)
    assert schedules.next_change(weekdays, FRIDAY) == {"at": "2026-11-30T08:00:00+08:00", "replicas": 4}
    assert schedules.next_change(with_schedule(DAY_AND_NIGHT, FRIDAY), FRIDAY)["at"] == "2026-11-28T20:00:00+08:00"
    assert schedules.next_change(with_schedule([], FRIDAY), FRIDAY) is None


def test_a_point_in_the_hour_that_a_clock_leaves_out_is_due_after_it():
    with override_settings(TIME_ZONE="Europe/Berlin"), timezone.override("Europe/Berlin"):
        spring = datetime(2026, 3, 29, 0, 59, tzinfo=UTC)  # 01:59, one minute before it is 03:00
        made = with_schedule([{"at": "02:30", "days": [6], "replicas": 2}], spring)
        assert schedules.due(made, spring) is None
        assert schedules.due(made, spring.replace(hour=2))[1] == 2


@pytest.mark.parametrize(
    "point",
    [
        {}, "08:00", {"at": "24:00", "days": [0], "replicas": 1}, {"at": "8:00", "days": [0], "replicas": 1},
        {"at": "08:00", "days": [], "replicas": 1}, {"at": "08:00", "days": [7], "replicas": 1},
        {"at": "08:00", "days": [True], "replicas": 1}, {"at": "08:00", "days": [0], "replicas": -1},
        {"at": "08:00", "days": [0], "replicas": 1.5}, {"at": "08:00\n", "days": [0], "replicas": 1},
    ],
)  # fmt: skip
def test_what_is_no_point_is_refused_by_its_number(point):
    with pytest.raises(Invalid, match="Entry 2 of the schedule"):
        schedules.check([DAY_AND_NIGHT[0], point])


def test_the_same_moment_twice_is_refused():
    with pytest.raises(Invalid, match="same day and time"):
        schedules.check([*DAY_AND_NIGHT, {"at": "20:00", "days": [3], "replicas": 2}])
