"""Moments in words."""

from datetime import UTC, datetime

import pytest
from django.utils import timezone

from console import clock

AT = datetime(2026, 2, 28, 22, 30, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "short", "long"),
    [
        ("Asia/Shanghai", "06:30:05 +08:00", "2026-03-01 06:30:05 +08:00"),
        ("Asia/Kolkata", "04:00:05 +05:30", "2026-03-01 04:00:05 +05:30"),
        ("UTC", "22:30:05 +00:00", "2026-02-28 22:30:05 +00:00"),
    ],
)
def test_a_moment_carries_its_offset_with_a_colon(zone, short, long):
    with timezone.override(zone):
        assert clock.words(AT) == short
        assert clock.words(AT, clock.LONG) == long
