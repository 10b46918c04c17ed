"""The end of a server's time in the fleet, and its return.

Decommissioning: no job starts (drain), the agent removes itself where it can, the credentials end, and the record
stays with its history in the list of those that are gone.
"""

import secrets
from datetime import timedelta

import redis
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from console import alerts, audit
from console.errors import Conflict, Invalid, NotAllowed, Unavailable
from console.models import User
from console.redis import client
from deployments import queues
from deployments.models import Enrolment, Job, JobState, Rotation, Server, ServerChange
from deployments.models.fleet import new_key
from deployments.row_locks import lock_server
from deployments.services import (
    clocks,
    clones,
    enrol,
    history,
    host_changes,
    jobs,
    orders,
    serve_uses,
    servers,
    waiting,
)
from deployments.steps import Text

LEAVE_S = 45  # an agent that has not said goodbye by then is not waited for
UNHEARD = Text(
    "服务器失联时被退役，作业的结局无从得知",
    "The server was decommissioned while it was silent: how this ended is not known",
)
DONE_BY = Text("服务器已退役", "The server was decommissioned")


def check_may(by: User) -> None:
    if not by.may("administrator"):
        raise NotAllowed(_("Only an administrator may decommission servers."), _("Ask one to do it."))


def removes_itself(server: Server) -> bool:
    """Whether its agent can take itself off the server: it answers, and owns the files it was installed as."""
    install = server.facts.get("install")
    return bool(
        isinstance(install, dict) and install.get("removes_itself") and not server.is_silent and not server.simulated
    )


def command_on(server: Server) -> str:
    """What removes the agent by hand."""
    install = server.facts.get("install")
    prefix = install.get("prefix") if isinstance(install, dict) else None
    return f"sudo {prefix if isinstance(prefix, str) else '/opt/ascend-console'}/bin/ascend-console leave --now"


def in_the_way(server: Server) -> list[Job]:
    """The jobs that keep a server from being decommissioned; a silent server's cannot be waited for."""
    return [] if server.is_offline else servers.busy_jobs(server)


def decommission(server: Server, confirm: str, *, by: User, reason: str = "", ticket: str = "") -> Server:
    """Take a server out of the fleet, at once or as soon as its agent has said goodbye (LEAVE_S at most).

    Raises NotAllowed, Invalid where `confirm` is not its name, Conflict while jobs run or for the console's own
    machine, Unavailable without Redis.
    """
    check_may(by)
    jobs.check_ticket(ticket)
    if confirm.strip() != server.name:
        raise Invalid(
            _("What was typed is not the name of the server."),
            _("Type %(name)s to confirm.") % {"name": server.name},
            code="not_confirmed",
        )
    with transaction.atomic():
        row = lock_server(server.pk)
        _check(row)
        asked = removes_itself(row)
        row.leaving_at, row.draining = timezone.now(), True
        row.drain_by, row.drain_at, row.drain_reason = by, row.drain_at or timezone.now(), reason.strip()[:200]
        row.save(update_fields=["leaving_at", "draining", "drain_by", "drain_at", "drain_reason"])
        waiting.hold_back(row, servers.withdraw)
        history.record(row, "server", "joined", "leaving", by=by, reason=reason, ticket=ticket)
        audit.record(by, "server.decommission_asked", row, reason=reason.strip()[:200], agent=asked)
        if asked:
            _ask_to_leave(row)
        else:
            row = finish(row)
    return row


def _check(row: Server) -> None:
    if row.is_local:
        raise Conflict(
            _("%(name)s is the console's own machine.") % {"name": row.name},
            _("Choose another server."),
            code="own_server",
        )
    jobs.check_present(row)
    if running := in_the_way(row):
        names = ", ".join(f"#{job.pk}" for job in running[:5])
        raise Conflict(
            _("Jobs are under way on %(name)s: %(jobs)s.") % {"name": row.name, "jobs": names},
            _("Drain the server and wait until they have ended, or cancel them."),
            code="under_way",
        )
    if not row.is_offline and (serving := serve_uses.on_server(row)):
        raise Conflict(
            _("Deployments serve from %(name)s: %(names)s.") % {"name": row.name, "names": ", ".join(serving[:5])},
            _("Stop them, or leave the server out of them, and move their gateways; wait until all has ended."),
            code="serves",
        )


def _ask_to_leave(row: Server) -> None:
    try:
        queues.push_leave(row)
    except redis.RedisError as error:
        raise Unavailable(
            _("The console cannot reach its Redis just now."), _("Try again in a minute."), code="redis_unavailable"
        ) from error


def finish(server: Server) -> Server:
    """End the credentials and take the server out of the fleet. Raises Unavailable; all or nothing."""
    try:
        with transaction.atomic():
            row = lock_server(server.pk)
            if row.is_gone:
                return row
            clones.end(row.pk)
            row.refresh_from_db()
            _end_jobs(row)
            Rotation.objects.filter(server=row).delete()
            orders.drop(row)
            _write_gone(row)
            connection = client()
            enrol.hang_up(connection, row)
            enrol.forget(connection, row.pk)
            enrol.save_users(connection)
            if row.simulated:
                enrol.gone_mark(row).parent.mkdir(parents=True, exist_ok=True)
                enrol.gone_mark(row).touch()
    except redis.RedisError as error:
        raise Unavailable(
            _("The console cannot reach its Redis just now."), _("Try again in a minute."), code="redis_unavailable"
        ) from error
    return row


def _write_gone(row: Server) -> None:
    """Who began it stands in the history before."""
    began = ServerChange.objects.filter(server=row, field="server", after="leaving").first()
    by = began.by if began else None
    # Whoever holds the old credentials finds that they open nothing, also after a restart of the console.
    row.key, row.redis_password = new_key(), secrets.token_hex(32)
    row.decommissioned_at, row.leaving_at = timezone.now(), None
    row.draining, row.drained_at, row.drain_at, row.drain_by = False, None, None, None
    row.queue_paused = row.maintenance = False
    row.save(
        update_fields=[
            "key", "redis_password", "decommissioned_at", "leaving_at", "draining", "drained_at", "drain_at",
            "drain_by", "queue_paused", "maintenance",
        ]
    )  # fmt: skip
    Enrolment.objects.filter(server=row, used_at=None).update(expires_at=timezone.now())
    history.record(row, "credentials", None, "revoked", by=by)
    history.record(
        row, "server", "leaving", "decommissioned", by=by, reason=began.reason if began else "",
        ticket=began.ticket if began else "",
    )  # fmt: skip
    audit.record(by, "server.decommissioned", row)
    for name in (clones.ALERT, clocks.ALERT, "card-lost"):
        alerts.resolve(name, f"server:{row.pk}")
    host_changes.settle(row)


def _end_jobs(row: Server) -> None:
    """Jobs that wait, or are drafts of a batch, will never start."""
    rows = Job.objects.filter(server=row, state__in=(JobState.DRAFT, JobState.WAITING_APPROVAL, JobState.QUEUED))
    rows = rows.select_for_update(no_key=True).order_by("pk")
    for job in rows:
        jobs.end_here(job, job.attempts.last(), JobState.CANCELLED, DONE_BY)
    # What ran on a silent server is heard no more, and nobody looks for those of who is gone.
    there = Job.objects.filter(server=row, state__in=(JobState.RUNNING, JobState.WAITING_REBOOT))
    there.update(state=JobState.LOST, reason=list(UNHEARD))


def goodbye(server: Server) -> None:
    """The agent says, signed, that it is gone from the server; within a transaction of the caller."""
    history.record(server, "agent_removed", None, "removed")


def finish_leaving() -> list[int]:
    """Finish what no agent has answered in time; the ids. One query where there is none."""
    limit = timezone.now() - timedelta(seconds=LEAVE_S)
    late = list(Server.objects.filter(leaving_at__lt=limit, decommissioned_at=None))
    return [finish(row).pk for row in late]


def bring_back(server: Server, *, by: User, ticket: str = "") -> Server:
    """A simulated server comes back as it was. A real one joins again by a command. Raises NotAllowed, Conflict."""
    check_may(by)
    if not server.is_gone or not server.simulated:
        raise Conflict(
            _("%(name)s is no simulated server that was decommissioned.") % {"name": server.name},
            _("Let a real server join again by a command of the page “Join a server”."),
            code="not_gone",
        )
    with transaction.atomic():
        row = return_row(lock_server(server.pk), by=by, ticket=ticket)
        enrol.gone_mark(row).unlink(missing_ok=True)
    return row


def return_row(row: Server, *, by: User | None, ticket: str = "") -> Server:
    """It is part of the fleet again. Within a transaction of the caller."""
    row.decommissioned_at = row.leaving_at = None
    row.save(update_fields=["decommissioned_at", "leaving_at"])
    history.record(row, "server", "decommissioned", "rejoined", by=by, ticket=ticket)
    audit.record(by, "server.rejoined", row)
    return row
