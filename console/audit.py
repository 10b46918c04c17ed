"""Who did what: one entry of django-auditlog for every verb."""

from typing import Any

from auditlog.models import LogEntry
from django.db.models import Model

from console.models import User


def record(by: User | None, verb: str, subject: Model, **details: Any) -> None:
    """Note that `by` (None: the console itself) did `verb` ("job.queued") to `subject`."""
    LogEntry.objects.log_create(
        subject,
        force_log=True,
        action=LogEntry.Action.ACCESS,
        actor=by,
        changes={},
        additional_data={"verb": verb, **details},
    )
