"""Moments in words, each with its offset: "14:03:21 +08:00" (never "+0800": one way everywhere)."""

from datetime import datetime

from django.utils import timezone

SHORT, LONG = "%H:%M:%S", "%Y-%m-%d %H:%M:%S"


def words(at: datetime, form: str = SHORT) -> str:
    """An aware moment on the console's own clock."""
    local = timezone.localtime(at)
    return f"{local.strftime(form)} {local.isoformat()[-6:]}"
