"""What is done to servers: pause and resume the queue, maintenance, drain, and cordon of single NPUs."""

from collections.abc import Callable
from typing import Any

import redis
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit
from console.errors import Conflict, Invalid
from console.models import User
from deployments import queues
from deployments.models import Attempt, Job, JobState, Server
from deployments.row_locks import lock_server
from deployments.services import history, host_changes, jobs, waiting

MAX_REASON = 200
SWITCHES = (
    "maintenance", "queue_paused", "queue_paused_reason", "queue_paused_by", "queue_paused_at",
    "draining", "drain_reason", "drain_by", "drain_at", "drained_at", "cordons",
)  # fmt: skip


def pause_queue(server: Server, *, by: User, reason: str = "", ticket: str = "") -> Server:
    """No job starts on the server until its queue is resumed; what its agent has taken already goes on."""

    def change(row: Server) -> tuple[str, str]:
        before = "paused" if row.queue_paused else "running"
        row.queue_paused, row.queue_paused_reason = True, reason.strip()[:MAX_REASON]
        row.queue_paused_by, row.queue_paused_at = by, timezone.now()
        return before, "paused"

    return _change(server, by, "server.queue_paused", "queue", change, reason, ticket)


def resume_queue(server: Server, *, by: User, ticket: str = "") -> Server:
    """Jobs start again, in the order they came."""

    def change(row: Server) -> tuple[str, str]:
        before = "paused" if row.queue_paused else "running"
        row.queue_paused, row.queue_paused_reason = False, ""
        row.queue_paused_by = row.queue_paused_at = None
        return before, "running"

    return _change(server, by, "server.queue_resumed", "queue", change, ticket=ticket)


def set_maintenance(server: Server, on: bool, *, by: User, reason: str = "", ticket: str = "") -> Server:
    """While a server is in maintenance only checks start on it; the other jobs wait."""

    def change(row: Server) -> tuple[str, str]:
        before = "on" if row.maintenance else "off"
        row.maintenance = on
        if not on:
            host_changes.settle(row)
        return before, "on" if on else "off"

    verb = "server.maintenance_begun" if on else "server.maintenance_ended"
    return _change(server, by, verb, "maintenance", change, reason, ticket)


def drain(server: Server, *, by: User, reason: str, ticket: str = "") -> Server:
    """No job starts any more, and those that run may end; then the server counts as drained."""
    _need_reason(reason)

    def change(row: Server) -> tuple[str, str]:
        before = drain_word(row)
        row.draining, row.drain_reason, row.drain_by = True, reason.strip()[:MAX_REASON], by
        if before == "off":
            row.drain_at, row.drained_at = timezone.now(), None
        return before, drain_word(row)

    changed = _change(server, by, "server.drain_begun", "drain", change, reason, ticket)
    settle_drains([changed.pk])
    changed.refresh_from_db(fields=["drained_at"])
    return changed


def end_drain(server: Server, *, by: User, ticket: str = "") -> Server:
    """Jobs start again."""

    def change(row: Server) -> tuple[str, str]:
        before = drain_word(row)
        row.draining, row.drain_reason = False, ""
        row.drain_by = row.drain_at = row.drained_at = None
        return before, "off"

    return _change(server, by, "server.drain_ended", "drain", change, ticket=ticket)


def drain_word(server: Server) -> str:
    """off, draining or drained."""
    return "off" if not server.draining else "drained" if server.drained_at else "draining"


def settle_drains(only: list[int] | None = None) -> list[int]:
    """Note as drained the draining servers on which no job is under way any more; their ids. One query where none is.

    Jobs that wait do not count: they start when the drain ends.
    """
    rows = Server.objects.filter(draining=True, drained_at=None)
    settled = []
    for pk in rows.values_list("pk", flat=True) if only is None else only:
        with transaction.atomic():
            row = lock_server(pk)
            if row.draining and row.drained_at is None and not busy_jobs(row):
                row.drained_at = timezone.now()
                row.save(update_fields=["drained_at"])
                history.record(row, "drain", "draining", "drained")
                settled.append(pk)
    return settled


def busy_jobs(server: Server) -> list[Job]:
    """The jobs that its agent has, or may have."""
    there = waiting.on_servers([server.pk]).get(server.pk, [])
    return [job for job in there if not job.waiting]


def cordon(server: Server, bus_id: str, *, by: User, reason: str, ticket: str = "") -> Server:
    """No new job gets this NPU. What runs on it goes on. Raises Invalid where no NPU has this bus id."""
    bus_id = _known_bus_id(server, bus_id)
    _need_reason(reason)

    def change(row: Server) -> tuple[Any, Any]:
        before = row.cordons.get(bus_id)
        kept = {"reason": reason.strip()[:MAX_REASON], "by": by.username, "at": timezone.now().isoformat()}
        row.cordons = {**row.cordons, bus_id: kept}
        return {bus_id: before["reason"]} if before else None, {bus_id: kept["reason"]}

    return _change(server, by, "server.npu_cordoned", "cordon", change, reason, ticket, bus_id=bus_id)


def uncordon(server: Server, bus_id: str, *, by: User, ticket: str = "") -> Server:
    """Jobs may have it again. Raises Conflict where it is not cordoned."""

    def change(row: Server) -> tuple[Any, Any]:
        known = next((name for name in row.cordons if name.upper() == bus_id.strip().upper()), None)
        if known is None:
            raise Conflict(
                _("NPU %(bus_id)s of %(server)s is not cordoned.") % {"bus_id": bus_id[:40], "server": row.name},
                _("Reload the page to see which are."),
                code="not_cordoned",
            )
        before = row.cordons[known]
        row.cordons = {name: kept for name, kept in row.cordons.items() if name != known}
        return {known: before["reason"]}, None

    return _change(server, by, "server.npu_uncordoned", "cordon", change, ticket=ticket, bus_id=bus_id[:40])


def _known_bus_id(server: Server, bus_id: str) -> str:
    """As npu-smi prints it. Raises Invalid."""
    wanted = bus_id.strip().upper()
    for known in server.npus.exclude(bus_id=None).values_list("bus_id", flat=True):
        if known and known.upper() == wanted:
            return known.upper()
    raise Invalid(
        _("%(server)s has no NPU %(bus_id)s.") % {"server": server.name, "bus_id": bus_id[:40]},
        _("Name it by the bus id that its page shows, such as 0000:C1:00.0."),
        code="no_such_npu",
    )


def _need_reason(reason: str) -> None:
    """Raises Invalid: who comes after shall know why."""
    if not reason.strip():
        raise Invalid(
            _("No reason was given."), _("Say in a few words why; everybody sees it."), code="no_reason"
        )  # fmt: skip


def _change(
    server: Server, by: User, verb: str, field: str, change: Callable[[Server], tuple[Any, Any]], reason: str = "",
    ticket: str = "", **details: str,
) -> Server:  # fmt: skip
    """Change the row as `change` does, which returns (before, after) for the history."""
    jobs.check_may_operate(by)
    jobs.check_ticket(ticket)
    with transaction.atomic():
        row = lock_server(server.pk)
        jobs.check_present(row)
        before, after = change(row)
        row.save(update_fields=list(SWITCHES))
        if before != after:
            history.record(row, field, before, after, by=by, reason=reason, ticket=ticket)
        audit.record(by, verb, row, **({"reason": reason.strip()[:MAX_REASON]} if reason else {}), **details)
        waiting.hold_back(row, withdraw)
        transaction.on_commit(lambda: _after(row))
    return row


def withdraw(attempt: Attempt) -> bool:
    try:
        return queues.withdraw(attempt)
    except redis.RedisError:
        return False  # what is in the queue stays there; the page lists it as handed over


def _after(server: Server) -> None:
    jobs.release([server.pk])
    queued = Job.objects.filter(server=server, state=JobState.QUEUED).select_related("server", "requester")
    for job in queued[: jobs.TOLD_AT_MOST]:
        jobs.tell(job)
