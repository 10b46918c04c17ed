"""Who waits for what: jobs whose locks another job holds, and jobs of a server whose queue stands still.

Such a job is queued with `waiting` set and has no entry in its server's queue. Whatever may have made room (an end, a
resumed queue) calls `jobs.release`, and ingest does so for every server every five seconds: no wake-up is lost. All
of it happens under the lock on the server's row, so that two deciders see each other's jobs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from console.errors import Conflict
from console.language import pick
from deployments import kinds
from deployments.models import Attempt, Job, JobState, Server
from deployments.models.job import UNDER_WAY
from deployments.row_locks import lock_server
from deployments.services import reserved
from deployments.services.reserved import Held

IN_MAINTENANCE = ("check", "cleanup_look", "drivers", "stop")  # kinds that start while a server is in maintenance
WHILE_DRAINING = ("stop",)  # a server is not drained before its engines have stopped
NPU_LOCK = reserved.NPU_LOCK
# Why nothing starts on a server, and how a job that waits says so.
WHY = {
    "gone": gettext_noop("waits: the server was decommissioned"),
    "quarantine": gettext_noop("waits: the server is in quarantine"),
    "paused": gettext_noop("waits: the queue is paused"),
    "draining": gettext_noop("waits: the server is being drained"),
    "maintenance": gettext_noop("waits: the server is in maintenance"),
}
SWITCHES = ("maintenance", "queue_paused", "draining", "quarantine", "cordons", "decommissioned_at", "leaving_at")


@dataclass(frozen=True)
class Wait:
    """Why a job waits. `why` is one of WHY, cordoned, reserved (`keeper` has its NPU) or locks; `place` counts from 1
    among those that wait for the same; `holder` is who holds the lock, or who waits in front where the holder is gone
    just now."""

    why: str
    place: int
    holder: Job | None
    lock: str = ""
    keeper: Held | None = None

    def words(self) -> str:
        """In the reader's language: "waits for job #12 (Check a server) · place 2"."""
        if self.why in WHY:
            told = _(WHY[self.why])
        elif self.why == "cordoned":
            told = _("waits: NPU %(bus_id)s is cordoned") % {"bus_id": bus_id_of(self.lock)}
        elif self.keeper:
            told = _("waits: NPU %(npu)s is kept for %(holder)s") % {
                "npu": self.lock[len(NPU_LOCK) :],
                "holder": pick(self.keeper.words()),
            }
        elif self.holder is None:
            told = _("starts in a moment")
        else:
            told = _("waits for job #%(id)s (%(kind)s)") % {
                "id": self.holder.pk,
                "kind": pick(kinds.title(self.holder.kind)),
            }
        return f"{told} · " + _("place %(n)s") % {"n": self.place}

    def as_json(self) -> dict[str, Any]:
        holder = {"id": self.holder.pk, "kind": self.holder.kind} if self.holder else None
        return {"why": self.why, "place": self.place, "holder": holder, "lock": self.lock, "text": self.words()}


def standstill(server: Server, kind: str) -> str:
    """Why no job of this kind starts on the server now: a key of WHY, or ''."""
    if server.is_gone or server.leaving_at:
        return "gone"
    if server.quarantine:
        return "quarantine"
    if server.queue_paused:
        return "paused"
    if server.draining and kind not in WHILE_DRAINING:
        return "draining"
    return "maintenance" if server.maintenance and kind not in IN_MAINTENANCE else ""


def bus_id_of(lock: str) -> str:
    """ "0000:C1:00.0" of the lock "npu:0000:C1:00.0" or of one of its chips, "npu:0000:C1:00.0/1"; '' of others."""
    return lock[len(NPU_LOCK) :].partition("/")[0].upper() if lock.startswith(NPU_LOCK) else ""


def cordoned_lock(server: Server, locks: Iterable[str]) -> str:
    """The first of these locks that is an NPU which is cordoned, or ''."""
    return next((lock for lock in locks if bus_id_of(lock) in server.cordons), "") if server.cordons else ""


def kept_for(servers: Iterable[int], jobs: Iterable[Job]) -> dict[int, dict[str, Held]]:
    """{server id: {NPU: who holds it}}. One query, none where none of the jobs is about an NPU."""
    return reserved.on_servers(servers) if any(reserved.names_npu(job.locks) for job in jobs) else {}


def on_servers(servers: Iterable[int]) -> dict[int, list[Job]]:
    """{server id: jobs that hold locks or wait there, oldest first}. One query.

    A lost job may still run, so it holds what it holds until it is cancelled, run again, or heard of.
    """
    lost = Q(state=JobState.LOST, cancel_requested_at=None)
    rows = Job.objects.filter(Q(state__in=UNDER_WAY) | lost, server__in=set(servers)).order_by("pk")
    found: dict[int, list[Job]] = {}
    for job in rows.only("pk", "server_id", "kind", "locks", "state", "waiting"):
        found.setdefault(job.server_id, []).append(job)
    return found


def look(
    server: Server, kind: str, locks: Sequence[str], others: Sequence[Job], pk: int | None = None,
    kept: Mapping[str, Held] | None = None,
) -> Wait | None:  # fmt: skip
    """What job `pk` (None: one that is not queued yet) has to wait for among `others` of its server, or None. `kept`
    is whom its NPUs are promised to."""
    ahead = [job for job in others if job.pk != pk and (pk is None or not job.waiting or job.pk < pk)]
    if why := standstill(server, kind):
        return Wait(why, 1 + sum(job.waiting for job in ahead), None)
    if cordoned := cordoned_lock(server, locks):
        return Wait("cordoned", 1 + sum(job.waiting and cordoned in job.locks for job in ahead), None, cordoned)
    if found := reserved.in_the_way(kept or {}, locks):
        lock = f"{NPU_LOCK}{found[0]}"
        return Wait("reserved", 1 + sum(job.waiting and lock in job.locks for job in ahead), None, lock, found[1])
    wanted = set(locks)
    shared = [job for job in ahead if wanted & set(job.locks) or _restarts(job)]
    if not shared:
        return None
    holder = min(shared, key=lambda job: (job.waiting, job.pk))
    return Wait(
        "locks", 1 + sum(job.waiting for job in shared), holder, min(wanted & set(holder.locks), default="server")
    )


def _restarts(job: Job) -> bool:
    """Whether its server is about to start anew: whatever began there now would be cut off."""
    return job.state == JobState.WAITING_REBOOT


def new(server: Server, kind: str, locks: Sequence[str]) -> Wait | None:
    """What a job that is queued now would have to wait for."""
    return look(server, kind, locks, on_servers([server.pk]).get(server.pk, []), kept=_kept(server, locks))


def _kept(server: Server, locks: Sequence[str]) -> Mapping[str, Held]:
    return reserved.of(server) if reserved.names_npu(locks) else {}


def must_wait(server: Server, kind: str, locks: Sequence[str], wait: bool, *, apart_from: Job | None = None) -> bool:
    """Whether a new job would have to wait. Raises Conflict where it would, and nobody wants it to."""
    others = on_servers([server.pk]).get(server.pk, [])
    others = [job for job in others if apart_from is None or job.pk != apart_from.pk]
    found = look(server, kind, locks, others, kept=_kept(server, locks))
    if found is None or wait:
        return found is not None
    if found.keeper:
        raise reserved.taken(server, found.lock[len(NPU_LOCK) :], found.keeper)
    raise _refusal(server.name, found)


def _refusal(name: str, found: Wait) -> Conflict:
    told = {"server": name}
    if found.why == "paused":
        return Conflict(
            _("The queue of %(server)s is paused.") % told, _("Resume it, or let the job wait."), code="queue_paused"
        )
    if found.why == "maintenance":
        return Conflict(
            _("%(server)s is in maintenance: only checks start on it.") % told,
            _("End the maintenance, or let the job wait."),
            code="maintenance",
        )
    if found.why == "draining":
        return Conflict(
            _("%(server)s is being drained: no job starts on it.") % told,
            _("End the drain, or let the job wait."),
            code="draining",
        )
    if found.why == "quarantine":
        return Conflict(
            _("%(server)s is in quarantine: two hosts use its identity.") % told,
            _("Open the page of %(server)s, which says what to do, or let the job wait.") % told,
            code="quarantine",
        )
    assert found.holder is not None
    return Conflict(
        _("Job #%(id)s (%(kind)s) holds %(lock)s on %(server)s.")
        % {"id": found.holder.pk, "kind": pick(kinds.title(found.holder.kind)), "lock": found.lock, **told},
        _("Wait until it has ended, cancel it, or let the job wait."),
        code="locked",
    )


def explain(jobs: Iterable[Job]) -> dict[int, Wait]:
    """{job id: why it waits} for those of the jobs that wait; `server` is at hand. One query, none where none waits."""
    waiting = [job for job in jobs if job.waiting and job.state == JobState.QUEUED]
    ids = {job.server_id for job in waiting}
    others, kept = on_servers(ids) if ids else {}, kept_for(ids, waiting)
    told = {}
    for job in waiting:
        there = others.get(job.server_id, [])
        found = look(job.server, job.kind, job.locks, there, job.pk, kept.get(job.server_id))
        told[job.pk] = found or Wait("locks", 1, None)
    return told


def take_free(server_id: int) -> list[Attempt]:
    """Mark what may start now on one server as handed over, in order of number; the attempts to push after the commit.

    A job that stays keeps its locks from those behind it: nobody overtakes. Within a transaction of the caller.
    """
    server = lock_server(server_id)
    there = on_servers([server_id]).get(server_id, [])
    free = free_of(server, there, kept_for([server_id], there).get(server_id))
    if not free:
        return []
    # The time it waited for others does not count against the time it is valid for.
    until = timezone.now() + timedelta(seconds=settings.JOB_VALID_S)
    Job.objects.filter(pk__in=free).update(waiting=False, not_after=until)
    found = Attempt.objects.filter(job__in=free, state=JobState.QUEUED).order_by("job_id", "n")
    return list({attempt.job_id: attempt for attempt in found.select_related("job__server", "job__requester")}.values())


def may_not_start(server: Server, job: Job, kept: Mapping[str, Held] | None = None) -> str:
    """Why the server itself or a promise, not another job, holds this one back, or ''."""
    if why := standstill(server, job.kind) or cordoned_lock(server, job.locks):
        return why
    return "reserved" if reserved.in_the_way(kept or {}, job.locks) else ""


def free_of(server: Server, there: Sequence[Job], kept: Mapping[str, Held] | None = None) -> list[int]:
    """Ids of the waiting jobs among those of one server that may start now."""
    held: set[str] = set()
    free: list[int] = []
    if any(map(_restarts, there)):
        return free
    for job in sorted(there, key=lambda job: (job.waiting, job.pk)):
        if job.waiting and not may_not_start(server, job, kept) and not held & set(job.locks):
            free.append(job.pk)
        held |= set(job.locks)
    return free


def servers_with_room() -> list[int]:
    """Ids of the servers on which a waiting job may start. Few queries and no lock: `take_free` decides."""
    rows = Job.objects.filter(state=JobState.QUEUED, waiting=True)
    ids = set(rows.order_by().values_list("server_id", flat=True))
    servers = Server.objects.only("pk", *SWITCHES).in_bulk(ids) if ids else {}
    there = on_servers(ids) if ids else {}
    kept = kept_for(ids, (job for jobs in there.values() for job in jobs if job.waiting))
    return sorted(pk for pk, server in servers.items() if free_of(server, there.get(pk, []), kept.get(pk)))


def hold_back(server: Server, withdraw: Any) -> int:
    """Take back what stands in the server's queue and may no longer start; how many. Within a transaction.

    `withdraw(attempt)` is true where the entry was still there. An entry that was sent twice is left alone: the first
    may run already.
    """
    with transaction.atomic():
        unseen = Attempt.objects.filter(
            job__server=server, job__state=JobState.QUEUED, job__waiting=False, state=JobState.QUEUED,
            started_at=None, next_line=1, pushes=1,
        )  # fmt: skip
        taken = 0
        found = list(unseen.select_related("job"))
        kept = kept_for([server.pk], (attempt.job for attempt in found)).get(server.pk)
        for attempt in found:
            if may_not_start(server, attempt.job, kept) and withdraw(attempt):
                Attempt.objects.filter(pk=attempt.pk).update(pushed_at=None, pushes=0)
                taken += Job.objects.filter(pk=attempt.job_id).update(waiting=True)
    return taken
