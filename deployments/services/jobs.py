"""What is done to jobs: queue, cancel, retry, release. State afterwards comes from the server's events."""

import contextlib
import json
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from types import ModuleType
from typing import Any

import redis
from django.conf import settings
from django.db import OperationalError, transaction
from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit, live
from console.errors import Conflict, Invalid, NotAllowed, NotFound
from console.language import pick
from console.models import User
from deployments import kinds, queues
from deployments.models import Attempt, Job, JobState, Server
from deployments.models.job import ENDED
from deployments.row_locks import lock_job, lock_server
from deployments.services import approvals, filling, reserved, root_access, speaking, waiting
from deployments.steps import BadParams, Text, read_params

log = logging.getLogger(__name__)

MAX_PARAMS_BYTES = 64 * 1024
TOLD_AT_MOST = 50  # waiting jobs whose pages hear that their place has changed
MAX_TICKET = 100


def queue_job(
    server: Server, kind: str, params: Mapping[str, Any], *, by: User, ticket: str = "", wait: bool = True
) -> Job:
    """Queue one job on a server's own queue and return its row.

    The queue entry is written when the row commits, so an agent never holds a job that the console
    cannot show; where Redis is away just then, ingest pushes it later. Raises NotAllowed, NotFound
    for an unknown kind, Invalid for wrong parameters, Conflict for a server that was never heard, is
    silent, or has no root helper where the job needs it. What has to wait (see services/waiting.py)
    waits, or with `wait=False` is a Conflict too. What needs approval waits for that first (services/approvals.py).
    """
    check_may_operate(by)
    module = find_kind(kind)
    check_role(by, module)
    read = checked_params(module, params)
    check_ticket(ticket)
    check_present(server)
    if server.is_offline:
        raise Conflict(
            _("%(server)s has been silent for %(seconds)s s or longer, so the job was not queued.")
            % {"server": server.name, "seconds": settings.OFFLINE_AFTER_S},
            _("Start the agent on %(server)s, then queue the job again.") % {"server": server.name},
            code="server_offline",
        )
    params = filling.filled(server, kind, module, params)
    read = checked_params(module, params)
    root_access.check(server, module, read)
    speaking.check_speaks(server, kind)
    locks = list(module.locks(read))
    with transaction.atomic():
        # The server's row is the mutex: two requests at once see each other's locks.
        server = lock_server(server.pk)
        check_present(server)
        check_cordons(server, locks)
        must_wait = waiting.must_wait(server, kind, locks, wait)
        held, now = approvals.is_needed(module), timezone.now()
        job = Job.objects.create(
            server=server, kind=kind, params=dict(params), locks=locks, requester=by, ticket=ticket,
            state=_first_state(module), waiting=must_wait and not held, created_at=now,
            not_after=now + timedelta(seconds=settings.JOB_VALID_S),
        )  # fmt: skip
        attempt = _new_attempt(job)
        audit.record(by, "job.queued", job, kind=kind, server=server.name)
        if held:
            approvals.ask(job, by=by)
        transaction.on_commit(lambda: tell(job) if must_wait or held else hand_over(attempt))
    return job


def _first_state(module: ModuleType) -> JobState:
    return JobState.WAITING_APPROVAL if approvals.is_needed(module) else JobState.QUEUED


def cancel_job(job: Job, *, by: User) -> Job:
    """Cancel a job: at once where its server never saw it, else by asking the server, which answers with events."""
    check_may_operate(by)
    with transaction.atomic():
        job = lock_job(job.pk)
        if job.state in ENDED:
            raise Conflict(
                _("Job #%(id)s has already ended, so there is nothing to cancel.") % {"id": job.pk},
                _("Reload the page to see how it ended."),
                code="already_ended",
            )
        attempt = job.attempts.last()
        job.cancel_requested_at = timezone.now()
        job.save(update_fields=["cancel_requested_at"])
        audit.record(by, "job.cancelled", job)
        if job.state in (JobState.DRAFT, JobState.WAITING_APPROVAL):
            unsent = attempt if attempt and attempt.state == JobState.QUEUED else None
            end_here(job, unsent, JobState.CANCELLED, Text("在开始之前已取消", "Cancelled before it began"))
        elif attempt is None or _never_left(attempt):
            end_here(
                job, attempt, JobState.CANCELLED, Text("在服务器收到之前已取消", "Cancelled before the server saw it")
            )
        else:
            transaction.on_commit(lambda: ask_to_cancel(attempt))
        transaction.on_commit(lambda: release([job.server_id]))
    tell(job)
    return job


def retry_job(job: Job, *, by: User, wait: bool = True) -> Job:
    """A new attempt of an ended job, with a log of its own; it waits as `queue_job` does."""
    check_may_operate(by)
    with transaction.atomic():
        job = lock_job(job.pk)
        server = job.server
        check_role(by, find_kind(job.kind))
        if job.state not in (*ENDED, JobState.LOST):
            raise Conflict(
                _("Job #%(id)s is still under way, so it was not started again.") % {"id": job.pk},
                _("Wait until it has ended, or cancel it first."),
                code="under_way",
            )
        module = find_kind(job.kind)
        if held := approvals.is_needed(module):
            approvals.check_not_lost(job)
        check_present(server)
        filling.check_filled(job)
        filling.choose_again(server, job)
        check_cordons(server, job.locks)
        if server.is_offline:
            raise Conflict(
                _("%(server)s is silent, so the job was not started again.") % {"server": server.name},
                _("Start the agent on %(server)s, then try again.") % {"server": server.name},
                code="server_offline",
            )
        job.waiting = waiting.must_wait(server, job.kind, job.locks, wait, apart_from=job) and not held
        job.state, job.reason, job.mark, job.reboot = _first_state(module), None, None, None
        job.started_at = job.ended_at = job.cancel_requested_at = None
        job.not_after = timezone.now() + timedelta(seconds=settings.JOB_VALID_S)
        job.save()
        attempt = _new_attempt(job)
        audit.record(by, "job.retried", job, attempt=attempt.n)
        if held:
            approvals.ask(job, by=by)
        elif not job.waiting:
            transaction.on_commit(lambda: hand_over(attempt))
    tell(job)
    return job


def release(servers: Iterable[int]) -> int:
    """Hand over the jobs that nothing holds back any more on these servers (ids); how many.

    Called after the commit of what made room, so a database that is too busy fails nobody: ingest does it later.
    """
    released = 0
    for pk in servers:
        try:
            with transaction.atomic():
                free = waiting.take_free(pk)
        except OperationalError as error:
            log.warning("waiting jobs of server %s wait for the database: %s", pk, error)
            continue
        for attempt in free:
            hand_over(attempt)
        released += len(free)
        if free:
            _tell_waiting(pk)
    return released


def _tell_waiting(server_id: int) -> None:
    """Those that still wait have another place now, or wait for another job."""
    rows = Job.objects.filter(server=server_id, state=JobState.QUEUED, waiting=True).order_by("pk")
    for job in rows.select_related("server", "requester")[:TOLD_AT_MOST]:
        tell(job)


def hand_over(attempt: Attempt) -> bool:
    """Push the attempt's dispatch. False when Redis is away: the row stays unpushed and is pushed again later.

    The row says "pushed" before it is, so that who cancels in this very moment asks the server, which then refuses
    what comes after; what was ended before is not pushed. The job's row has been committed, so a database that is too
    busy must not make the call fail: it would be repeated, and the job with it. Ingest pushes what got lost so.
    """
    before = (attempt.pushed_at, attempt.pushes)
    attempt.pushed_at, attempt.pushes = timezone.now(), attempt.pushes + 1
    row = Attempt.objects.filter(pk=attempt.pk, state=JobState.QUEUED)
    try:
        if not row.update(pushed_at=attempt.pushed_at, pushes=attempt.pushes):
            return False
        try:
            queues.push(attempt)
        except redis.RedisError:
            attempt.pushed_at, attempt.pushes = before
            row.update(pushed_at=attempt.pushed_at, pushes=attempt.pushes)
            raise
    except (redis.RedisError, OperationalError) as error:
        log.warning("dispatch of %s waits: %s", attempt.pk, error)
        return False
    tell(attempt.job)
    return True


def end_here(job: Job, attempt: Attempt | None, state: JobState, reason: Text) -> None:
    """Write an end that the console itself decides, before any event of the server."""
    now = timezone.now()
    if job.state == JobState.WAITING_APPROVAL:
        approvals.close(job)  # where nobody has decided; else nothing is open any more
    job.state, job.reason, job.ended_at, job.waiting = state, list(reason), now, False
    job.save(update_fields=["state", "reason", "ended_at", "waiting"])
    if attempt is not None:
        attempt.state, attempt.ended_at = state, now
        attempt.save(update_fields=["state", "ended_at"])


def as_json(job: Job, wait: waiting.Wait | None = None) -> dict[str, Any]:
    """A job as API, sockets and pages show it; needs `server` and `requester` at hand.

    `wait` is why it waits, where the caller has asked for many at once; else it is looked up.
    """
    wait = wait or waiting.explain([job]).get(job.pk)
    return {
        "id": job.pk,
        "kind": job.kind,
        "server": job.server.name,
        "simulated": job.server.simulated,
        "state": job.state,
        "params": filling.asked(job),
        "ticket": job.ticket,
        "requester": job.requester.username if job.requester else None,
        "reason": pick(job.reason) or None,
        "reasons": job.reason,
        "mark": pick(job.mark) or None,
        "waiting": wait.as_json() if wait else None,
        "batch": job.batch_id,
        "reboot": job.reboot if job.state == JobState.WAITING_REBOOT else None,
        "cancelling": bool(job.cancel_requested_at) and not job.is_ended,
        "created_at": _iso(job.created_at),
        "started_at": _iso(job.started_at),
        "ended_at": _iso(job.ended_at),
    }


def tell(job: Job) -> None:
    """Publish the job's present state; a lost message is mended by the next or by reload."""
    data = as_json(job)
    with contextlib.suppress(redis.RedisError):
        live.publish(f"job:{job.pk}", "state", data)
        live.publish("jobs", "job", data)


def _iso(at: Any) -> str | None:
    return at.isoformat(timespec="milliseconds") if at else None


def check_may_operate(by: User) -> None:
    """Raises NotAllowed where `by` may only look."""
    if not by.may("operator"):
        raise NotAllowed(
            _("%(user)s may look but not change anything.") % {"user": by.username},
            _("Ask an administrator for the role operator."),
        )


def check_role(by: User, module: ModuleType) -> None:
    """Raises NotAllowed where the kind is for a higher role (its ROLE) than `by` has."""
    if not by.may(getattr(module, "ROLE", "operator")):
        raise NotAllowed(
            _("“%(kind)s” is for administrators.") % {"kind": pick(module.TITLE)}, _("Ask one to queue it.")
        )


def check_present(server: Server) -> None:
    """Raises Conflict for a server that was decommissioned, or is about to be."""
    if server.is_gone or server.leaving_at:
        raise Conflict(
            _("%(server)s was decommissioned.") % {"server": server.name},
            _("Choose another server, or let this one join again."),
            code="decommissioned",
        )


def check_cordons(server: Server, locks: Sequence[str]) -> None:
    """Raises Conflict where the job would take an NPU that is cordoned, or promised to somebody else."""
    if lock := waiting.cordoned_lock(server, locks):
        bus_id = waiting.bus_id_of(lock)
        raise Conflict(
            _("NPU %(bus_id)s of %(server)s is cordoned (%(reason)s).")
            % {"bus_id": bus_id, "server": server.name, "reason": server.cordons[bus_id]["reason"]},
            _("Choose another NPU, or uncordon this one on the page of %(server)s.") % {"server": server.name},
            code="npu_cordoned",
        )
    if reserved.names_npu(locks) and (found := reserved.in_the_way(reserved.of(server), locks)):
        raise reserved.taken(server, *found)


def find_kind(kind: str) -> ModuleType:
    """The module of a kind. Raises NotFound that names those there are."""
    try:
        return kinds.load(kind)
    except KeyError:
        raise NotFound(
            _("There is no job kind “%(kind)s”.") % {"kind": kind[:60]},
            _("Use one of: %(kinds)s.") % {"kinds": ", ".join(kinds.names())},
            code="unknown_kind",
        ) from None


def checked_params(module: ModuleType, params: Mapping[str, Any]) -> Any:
    """The kind's Params of JSON values. Raises Invalid in words."""
    if len(json.dumps(params)) > MAX_PARAMS_BYTES:
        raise Invalid(
            _("The parameters are longer than 64 kB."), _("Send only what the job kind asks for."), code="too_long"
        )
    try:
        return read_params(module.Params, params)
    except BadParams as error:
        what = "; ".join(f"{name[:60]}: {pick(text)}" for name, text in error.problems[:8])
        raise Invalid(
            _("The parameters do not fit: %(problems)s.") % {"problems": what},
            _("Mend them and send the job again."),
            code="invalid_params",
        ) from error


def check_ticket(ticket: str) -> None:
    """Raises Invalid."""
    if len(ticket) > MAX_TICKET:
        raise Invalid(
            _("The ticket is longer than %(most)s characters.") % {"most": MAX_TICKET},
            _("Send its number alone."),
            code="too_long",
        )


def _new_attempt(job: Job) -> Attempt:
    n = (job.attempts.aggregate(last=Max("n"))["last"] or 0) + 1
    # The random part keeps a console with a fresh database from meeting claims of its predecessor.
    return Attempt.objects.create(pk=f"a{job.pk}-{n}-{secrets.token_hex(4)}", job=job, n=n)


def _never_left(attempt: Attempt) -> bool:
    """True when the attempt's dispatch is certainly not on its server and never will be."""
    if attempt.next_line > 1 or attempt.started_at:
        return False
    if attempt.pushed_at is None:
        return True
    try:
        return queues.withdraw(attempt)
    except redis.RedisError:
        return False


def ask_to_cancel(attempt: Attempt) -> bool:
    """Push the attempt's cancel. False when Redis is away: it is pushed again until an event answers it."""
    try:
        queues.push_cancel(attempt)
    except redis.RedisError as error:
        log.warning("cancel of %s waits for Redis: %s", attempt.pk, error)
        return False
    return True
