"""What is done to batches: start, advance, pause, resume, stop, retry what failed.

All jobs of a batch are made at once, as drafts. A wave begins when every job of the wave before has settled; then its
jobs are queued like any other, and wait for locks like any other. `advance` decides that from the rows alone, under
the lock on the batch's row: it may be called at any time and any number of times, by whoever has seen a job end and
by ingest every five seconds.
"""

import contextlib
import logging
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import redis
from django.conf import settings
from django.db import OperationalError, transaction
from django.db.models import Count, Max
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit, doubt, live
from console.errors import Conflict, Invalid
from console.language import pick
from console.models import User
from deployments.models import Attempt, Batch, BatchState, Job, JobState, Server
from deployments.models.job import ENDED
from deployments.row_locks import lock_servers
from deployments.services import approvals, batch_gates, filling, jobs, root_access, selection, waiting
from deployments.steps import Text

log = logging.getLogger(__name__)

BROKEN = (JobState.FAILED, JobState.LOST)
SETTLED = (*ENDED, JobState.LOST)
NOT_BEGUN = (JobState.DRAFT, JobState.WAITING_APPROVAL)  # the latter were held back at their turn
AT_ONCE = 10  # jobs handed over by whoever advances; ingest hands over the rest within five seconds


@dataclass(frozen=True)
class Plan:
    """How a batch goes on: `canary` servers first, then waves of `size`; it stops after `stop_after` failures."""

    canary: int = 1
    size: int = 10
    stop_after: int = 1
    spread: bool = True

    def check(self) -> None:
        """Raises Invalid in words."""
        selection.check_numbers(
            ("canary", self.canary, 0, 100),
            ("wave", self.size, 1, selection.MOST_SERVERS),
            ("stop_after", self.stop_after, 1, selection.MOST_SERVERS),
        )


def start(
    kind: str, params: Mapping[str, Any], asked: selection.Asked, plan: Plan, *, by: User, ticket: str = ""
) -> Batch:
    """Make the batch and its jobs, and begin with the first wave after the commit.

    Raises NotAllowed, NotFound for an unknown kind, Invalid for wrong parameters, a plan or a selection that cannot
    be, Conflict where every server is silent.
    """
    jobs.check_may_operate(by)
    module = jobs.find_kind(kind)
    approvals.check_not_many(module)
    read = jobs.checked_params(module, params)
    if kind in filling.FILLERS:
        raise Conflict(
            _("“%(kind)s” is planned for each server by itself, so it goes to no batch.")
            % {"kind": pick(module.TITLE)},
            _("Make a campaign of it, or queue it for one server after the other, from the plan of each."),
            code="one_by_one",
        )
    locks = list(module.locks(read))
    jobs.check_ticket(ticket)
    plan.check()
    servers, problems = selection.find(asked)
    _must_hit(servers, problems)
    if root_access.is_needed(module, read):
        _must_have_root(servers)
    placed = selection.waves(servers, canary=plan.canary, size=plan.size, spread=plan.spread)
    now = timezone.now()
    with transaction.atomic():
        batch = Batch.objects.create(
            kind=kind, params=dict(params), canary=plan.canary, wave_size=plan.size, stop_after=plan.stop_after,
            spread=plan.spread, requester=by, ticket=ticket, created_at=now,
            selection={"asked": asked.as_json(), "servers": [server.name for server in servers]},
        )  # fmt: skip
        Job.objects.bulk_create(
            Job(
                server=server, kind=kind, params=dict(params), locks=locks, requester=by, ticket=ticket,
                state=JobState.DRAFT, batch=batch, wave=placed[server.pk], created_at=now,
                not_after=now + timedelta(seconds=settings.JOB_VALID_S),
            )
            for server in sorted(servers, key=lambda server: (placed[server.pk], server.name))
        )  # fmt: skip
        audit.record(by, "batch.started", batch, kind=kind, servers=len(servers))
        transaction.on_commit(lambda: _advance_soon(batch.pk))
    return batch


def _must_hit(servers: Sequence[Server], problems: Sequence[str]) -> None:
    if problems:
        raise Invalid(" ".join(problems), _("Mend the selection and send it again."), code="bad_selection")
    if not servers:
        raise Invalid(_("No server matches the selection."), _("Widen it."), code="no_server")
    if all(server.is_offline for server in servers):
        raise Conflict(
            _("Every selected server is silent, so the batch was not started."),
            _("Start their agents, then try again."),
            code="server_offline",
        )


def _must_have_root(servers: Sequence[Server]) -> None:
    rows = Server.objects.filter(pk__in=[server.pk for server in servers]).only("name", "simulated", "facts")
    lacking = [server.name for server in rows if not server.has_root]
    if lacking:
        raise Conflict(
            _("These servers have no root helper, which the job needs: %(names)s.")
            % {"names": ", ".join(lacking[:20])},
            _("Leave them out, or join them again as root, without NO_ROOT_HELPER."),
            code="no_root",
        )


# ---------- going on ----------


def under_way() -> list[int]:
    """Ids of batches that may have to go on."""
    return list(Batch.objects.filter(state=BatchState.RUNNING).order_by("pk").values_list("pk", flat=True))


def _advance_soon(pk: int) -> None:
    """After a change was committed: a database that is too busy must not make the call fail; ingest does it then."""
    try:
        advance(pk)
    except OperationalError as error:
        log.warning("batch %s goes on later: %s", pk, error)


def advance_all(ids: Iterable[int]) -> None:
    for pk in sorted(ids):
        advance(pk)


def advance(pk: int) -> Batch | None:
    """Begin the next wave, end the batch, or leave it as it is; None where there is no such batch."""
    with transaction.atomic():
        batch = Batch.objects.select_for_update().filter(pk=pk).first()
        if batch is None:
            return None
        before = (batch.state, batch.reason)
        batch_gates.of(batch).look(batch)
        started: list[Attempt] = []
        if batch.state == BatchState.RUNNING:
            started = _go_on(batch)
        elif batch.state == BatchState.FAILED and not batch.jobs.exclude(state=JobState.SUCCEEDED).exists():
            batch.state, batch.reason = BatchState.SUCCEEDED, None  # the last failed one was run again, or came back
        changed = (batch.state, batch.reason) != before
        if changed:
            batch.save(update_fields=["state", "reason", "ended_at"])
        transaction.on_commit(lambda: _after(batch, started, changed))
    return batch


def _after(batch: Batch, started: Sequence[Attempt], changed: bool) -> None:
    for attempt in started[:AT_ONCE]:
        if not attempt.job.waiting:
            jobs.hand_over(attempt)
    if changed or started:
        tell(batch)


def _go_on(batch: Batch) -> list[Attempt]:
    """Attempts of the wave that begins; sets the batch's state where it comes to an end. Under its lock."""
    while True:
        rows = list(batch.jobs.order_by("wave", "pk").values_list("pk", "state", "wave"))
        counts = Counter(state for _pk, state, _wave in rows)
        if reason := _why_stop(batch, rows):
            batch.state, batch.reason = BatchState.STOPPED, list(reason)
            return []
        if any(state not in (*SETTLED, *NOT_BEGUN) for _pk, state, _wave in rows):
            return []
        drafts = [(wave or 0, pk) for pk, state, wave in rows if state == JobState.DRAFT]
        first = min((wave for wave, _pk in drafts), default=None)
        if not batch_gates.of(batch).ready(batch, first):
            return []
        if first is None:
            _end(batch, counts, len(rows))
            return []
        if _is_doubted(batch):
            return []  # silent servers would fail, and it may be our own fault that they are
        if started := _start_wave(batch, [pk for wave, pk in drafts if wave == first]):
            return started
        # Every server of that wave was silent or held back: that is judged again.


def _is_doubted(batch: Batch) -> bool:
    """Whether servers of a sort that the batch has still to do fell silent together: see services/silence.py."""
    doubted = {one.simulated for one in doubt.read()}
    return bool(doubted) and batch.jobs.filter(state=JobState.DRAFT, server__simulated__in=doubted).exists()


def _why_stop(batch: Batch, rows: Sequence[tuple[int, str, int | None]]) -> Text | None:
    broken = sum(state in BROKEN for _pk, state, _wave in rows) - batch.forgiven
    canary = [state for _pk, state, wave in rows if wave == 0]
    rest = any(state in NOT_BEGUN for _pk, state, _wave in rows)
    if not rest or broken <= 0:
        return None
    if any(state in BROKEN for state in canary) and not batch.forgiven:
        return Text("首批试运行失败，其余服务器未开始", "The canary failed, so the others were not begun")
    if broken >= batch.stop_after:
        return Text(f"已有 {broken} 台失败，达到停止阈值", f"{broken} failed, and it stops after {batch.stop_after}")
    return None


def _end(batch: Batch, counts: Mapping[str, int], total: int) -> None:
    good = counts.get(JobState.SUCCEEDED, 0)
    batch.state = BatchState.SUCCEEDED if good == total else BatchState.FAILED
    batch.reason = None if good == total else [f"{total} 台中 {good} 台成功", f"{good} of {total} succeeded"]
    batch.ended_at = timezone.now()


def _start_wave(batch: Batch, ids: Sequence[int]) -> list[Attempt]:
    """Queue these drafts: new attempts, or none for servers that are silent, whose jobs fail."""
    wave = list(Job.objects.filter(pk__in=ids).select_related("requester").order_by("server_id", "pk"))
    servers = lock_servers([job.server_id for job in wave])
    wave = batch_gates.of(batch).admit(batch, wave, servers)
    others = waiting.on_servers(servers)
    newest = dict(Attempt.objects.filter(job__in=ids).values_list("job").annotate(last=Max("n")).order_by())
    now = timezone.now()
    until = now + timedelta(seconds=settings.JOB_VALID_S)
    fresh: dict[str, Any] = {
        "state": JobState.QUEUED, "reason": None, "started_at": None, "ended_at": None, "cancel_requested_at": None,
        "not_after": until, "reboot": None, "mark": None,
    }  # fmt: skip
    groups: dict[str, list[int]] = {"silent": [], "waits": [], "goes": []}
    attempts = []
    for job in wave:
        job.server = servers[job.server_id]
        if job.server.is_offline:
            groups["silent"].append(job.pk)
            continue
        job.waiting = waiting.look(job.server, job.kind, job.locks, others.get(job.server_id, [])) is not None
        groups["waits" if job.waiting else "goes"].append(job.pk)
        job.state, job.not_after = JobState.QUEUED, until
        n = newest.get(job.pk, 0) + 1
        attempts.append(Attempt(pk=f"a{job.pk}-{n}-{secrets.token_hex(4)}", job=job, n=n))
    # Three updates, not one per job: a wave of hundreds is one short transaction.
    Job.objects.filter(pk__in=groups["goes"]).update(waiting=False, **fresh)
    Job.objects.filter(pk__in=groups["waits"]).update(waiting=True, **fresh)
    silent = ["轮到它时服务器失联", "The server was silent when its turn came"]
    Job.objects.filter(pk__in=groups["silent"]).update(state=JobState.FAILED, reason=silent, ended_at=now)
    return Attempt.objects.bulk_create(attempts)


# ---------- what a person does ----------


def pause(batch: Batch, *, by: User) -> Batch:
    """No further wave begins; what runs goes on."""
    with _changing(batch, by, "batch.paused") as row:
        _must_be(row, BatchState.RUNNING)
        row.state, row.reason = BatchState.PAUSED, [f"由 {by.username} 暂停", f"Paused by {by.username}"]
    return row


def resume(batch: Batch, *, by: User) -> Batch:
    """Go on after a pause, or after it had stopped itself: the failures so far are forgiven."""
    with _changing(batch, by, "batch.resumed") as row:
        _must_be(row, BatchState.PAUSED, BatchState.STOPPED)
        if row.state == BatchState.STOPPED and not row.jobs.filter(state__in=NOT_BEGUN).exists():
            raise Conflict(_("Nothing is left to go on with."), _("Retry what failed."), code="nothing_left")
        row.state, row.reason = BatchState.RUNNING, None
        row.forgiven = row.jobs.filter(state__in=BROKEN).count()
        batch_gates.of(row).forgive(row)
    return row


def stop(batch: Batch, *, by: User, cancel_running: bool = False) -> Batch:
    """Cancel what has not begun, for good; with `cancel_running` also what runs or waits."""
    with _changing(batch, by, "batch.stopped", cancel_running=cancel_running) as row:
        _must_be(row, BatchState.RUNNING, BatchState.PAUSED, BatchState.STOPPED)
        reason = [f"批次由 {by.username} 停止", f"The batch was stopped by {by.username}"]
        drafts = row.jobs.filter(state__in=NOT_BEGUN)
        drafts.update(state=JobState.CANCELLED, reason=reason, ended_at=timezone.now())
        row.state, row.reason = BatchState.STOPPED, [f"由 {by.username} 停止", f"Stopped by {by.username}"]
    if cancel_running:
        for job in row.jobs.exclude(state__in=SETTLED).filter(cancel_requested_at=None):
            with contextlib.suppress(Conflict):  # it ended just now
                jobs.cancel_job(job, by=by)
    return row


def retry_failed(batch: Batch, *, by: User) -> Batch:
    """What failed, was lost or was cancelled goes again, in new waves after the others, with no canary."""
    with _changing(batch, by, "batch.retried") as row:
        again = list(row.jobs.filter(state__in=(*BROKEN, JobState.CANCELLED)).select_related("server"))
        if not again:
            raise Conflict(_("No job of this batch has failed."), _("There is nothing to retry."), code="nothing_left")
        if batch_gates.of(row).keeps_waves:
            row.jobs.filter(pk__in=[job.pk for job in again]).update(state=JobState.DRAFT, reason=None)
        else:
            _place_again(row, again)
        row.state, row.reason, row.ended_at, row.forgiven = BatchState.RUNNING, None, None, 0
    return row


def _place_again(batch: Batch, again: Sequence[Job]) -> None:
    last = batch.jobs.aggregate(last=Max("wave"))["last"] or 0
    placed = selection.waves([job.server for job in again], canary=0, size=batch.wave_size, spread=batch.spread)
    for number in sorted(set(placed.values())):
        ids = [job.pk for job in again if placed[job.server_id] == number]
        Job.objects.filter(pk__in=ids).update(state=JobState.DRAFT, wave=last + number, reason=None)


@contextlib.contextmanager
def _changing(batch: Batch, by: User, verb: str, **details: Any) -> Iterator[Batch]:
    """The batch's row under its lock; saved with an audit entry, then told and advanced after the commit."""
    jobs.check_may_operate(by)
    with transaction.atomic():
        row = Batch.objects.select_for_update().get(pk=batch.pk)
        yield row
        row.save()
        audit.record(by, verb, row, **details)
        transaction.on_commit(lambda: tell(row))
        transaction.on_commit(lambda: _advance_soon(row.pk))


def _must_be(batch: Batch, *states: BatchState) -> None:
    if batch.state not in states:
        raise Conflict(
            _("Batch #%(id)s is %(state)s.") % {"id": batch.pk, "state": batch.get_state_display()},
            _("Reload the page to see what can be done now."),
            code="wrong_state",
        )


# ---------- as seen ----------


def counts_of(batches: Iterable[Batch]) -> dict[int, dict[str, int]]:
    """{batch id: {job state: n}}. One query."""
    counts: dict[int, dict[str, int]] = {batch.pk: {} for batch in batches}
    rows = Job.objects.filter(batch__in=list(counts)).order_by().values_list("batch_id", "state")
    for pk, state, n in rows.annotate(n=Count("pk")):
        counts[pk][state] = n
    return counts


def as_json(batch: Batch, counts: Mapping[str, int] | None = None) -> dict[str, Any]:
    """A batch as API and sockets show it; needs `requester` at hand."""
    known = counts_of([batch])[batch.pk] if counts is None else counts
    return {
        "id": batch.pk,
        "kind": batch.kind,
        "params": batch.params,
        "state": batch.state,
        "reason": pick(batch.reason) or None,
        "select": batch.selection.get("asked", {}),
        "servers": len(batch.selection.get("servers", [])),
        "jobs": dict(known),
        "canary": batch.canary,
        "wave": batch.wave_size,
        "stop_after": batch.stop_after,
        "spread": batch.spread,
        "requester": batch.requester.username if batch.requester else None,
        "ticket": batch.ticket,
        "created_at": batch.created_at.isoformat(timespec="milliseconds"),
        "ended_at": batch.ended_at.isoformat(timespec="milliseconds") if batch.ended_at else None,
    }


def tell(batch: Batch) -> None:
    """Pages of the batch and the lists read it again."""
    with contextlib.suppress(redis.RedisError):
        live.publish(f"batch:{batch.pk}", "moved", {"id": batch.pk})
        live.publish("batches", "moved", {"id": batch.pk})
    batch_gates.of(batch).told(batch)
