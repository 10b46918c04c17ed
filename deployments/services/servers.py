"""What is done to servers: pause and resume the queue, begin and end maintenance."""

from collections.abc import Callable

import redis
from django.db import transaction
from django.utils import timezone

from console import audit
from console.models import User
from deployments import queues
from deployments.models import Attempt, Job, JobState, Server
from deployments.services import jobs, waiting


def pause_queue(server: Server, *, by: User, reason: str = "") -> Server:
    """No job starts on the server until its queue is resumed; what its agent has taken already goes on."""

    def change(row: Server) -> None:
        row.queue_paused, row.queue_paused_reason = True, reason.strip()[:200]
        row.queue_paused_by, row.queue_paused_at = by, timezone.now()

    return _change(server, by, "server.queue_paused", change, reason=reason.strip()[:200])


def resume_queue(server: Server, *, by: User) -> Server:
    """Jobs start again, in the order they came."""

    def change(row: Server) -> None:
        row.queue_paused, row.queue_paused_reason = False, ""
        row.queue_paused_by = row.queue_paused_at = None

    return _change(server, by, "server.queue_resumed", change)


def set_maintenance(server: Server, on: bool, *, by: User) -> Server:
    """While a server is in maintenance only checks start on it; the other jobs wait."""

    def change(row: Server) -> None:
        row.maintenance = on

    return _change(server, by, "server.maintenance_begun" if on else "server.maintenance_ended", change)


def _change(server: Server, by: User, verb: str, change: Callable[[Server], None], **details: str) -> Server:
    jobs.check_may_operate(by)
    with transaction.atomic():
        row = Server.objects.select_for_update().get(pk=server.pk)
        change(row)
        row.save(
            update_fields=[
                "maintenance", "queue_paused", "queue_paused_reason", "queue_paused_by", "queue_paused_at",
            ]
        )  # fmt: skip
        audit.record(by, verb, row, **details)
        waiting.hold_back(row, _withdraw)
        transaction.on_commit(lambda: _after(row))
    return row


def _withdraw(attempt: Attempt) -> bool:
    try:
        return queues.withdraw(attempt)
    except redis.RedisError:
        return False  # what is in the queue stays there; the page lists it as handed over


def _after(server: Server) -> None:
    jobs.release([server.pk])
    queued = Job.objects.filter(server=server, state=JobState.QUEUED).select_related("server", "requester")
    for job in queued[: jobs.TOLD_AT_MOST]:
        jobs.tell(job)
