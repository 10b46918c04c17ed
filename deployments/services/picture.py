"""What reconcile judges by: one deployment under its lock, its replicas with their jobs, and what is held for them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from deployments.models import (
    GONE,
    Deployment,
    JobState,
    PortLease,
    Replica,
    ReplicaState,
    Reservation,
)
from deployments.models.job import ENDED
from deployments.services import replica_live

LOST_AFTER = timedelta(minutes=10)
FIRST_S = 15  # how long the first replica of a revision has to go on without an error
LEAST_ERRORS, MOST_FAILING = 3, 0.1  # of the first replica's answers: more is no good revision
GATEWAY_S = 3  # within which a gateway sends nothing more to a replica that drains


@dataclass
class Picture:
    """`replicas` are those that are there, hold something, or failed and were not tried again; by their number."""

    deployment: Deployment
    replicas: Sequence[Replica]
    now: datetime = field(default_factory=timezone.now)

    @property
    def rollout(self) -> dict[str, Any]:
        return self.deployment.rollout or {}

    @property
    def live(self) -> list[Replica]:
        """Those that count: there and not on their way out. One that is being restarted counts."""
        restarted = self.rollout.get("now")
        return [
            row
            for row in self.replicas
            if row.state not in GONE and (row.state != ReplicaState.DRAINING or row.pk == restarted)
        ]

    @property
    def news(self) -> list[Replica]:
        return [row for row in self.live if row.revision_id == self.deployment.revision_id]

    @property
    def olds(self) -> list[Replica]:
        return [row for row in self.live if row.revision_id != self.deployment.revision_id]

    @property
    def draining(self) -> list[Replica]:
        """Those that leave and whose server may be asked to end them."""
        restarted = self.rollout.get("now")
        leaving = (row for row in self.replicas if row.state == ReplicaState.DRAINING and row.pk != restarted)
        return [row for row in leaving if not row.server.is_offline]

    @property
    def failed(self) -> list[Replica]:
        """Failed ones of the present revision, since somebody last asked: each keeps its place in the count."""
        tried = self.deployment.tried_at or self.deployment.created_at
        return [
            row
            for row in self.replicas
            if row.state == ReplicaState.FAILED
            and row.revision_id == self.deployment.revision_id
            and row.ended_at is not None
            and row.ended_at >= tried
        ]

    @property
    def lost(self) -> list[Replica]:
        """Live ones whose server has been silent for LOST_AFTER."""
        limit = self.now - LOST_AFTER
        return [row for row in self.live if (seen := row.server.last_seen_at) is not None and seen < limit]


def look(deployment: Deployment) -> Picture:
    """Two queries, and none of what has long ended."""
    held = Exists(Reservation.objects.filter(replica=OuterRef("pk"))) | Exists(
        PortLease.objects.filter(replica=OuterRef("pk"))
    )
    rows = Replica.objects.filter(deployment=deployment).annotate(holds=held).order_by("n")
    tried = deployment.tried_at or deployment.created_at
    failed = Q(state=ReplicaState.FAILED, revision=deployment.revision_id, ended_at__gte=tried)
    found = rows.filter(~Q(state__in=GONE) | Q(holds=True) | failed)
    return Picture(deployment, list(found.select_related("server", "revision", "serve_job", "stop_job", "deployment")))


def is_under_way(replica: Replica) -> bool:
    """Whether a job that starts it has not ended; a lost one may still run."""
    return replica.serve_job is not None and replica.serve_job.state not in ENDED


def to_settle(replica: Replica) -> bool:
    """Whether an end of its jobs may not stand in its row yet: some end on the console, without a word of a server."""
    stop, serve = replica.stop_job, replica.serve_job
    if stop is not None and stop.state in ENDED:
        left = replica.state not in GONE
        told = replica.engine.get("not_stopped") == stop.pk
        return left if stop.state == JobState.SUCCEEDED else not told
    if serve is None or stop is not None or serve.state not in ENDED or replica.state in GONE:
        return False
    if serve.state != JobState.SUCCEEDED:
        return True
    return replica.state in (ReplicaState.PLANNED, ReplicaState.STARTING) or (
        replica.state == ReplicaState.LOADING and replica.ready_at is None
    )


def is_proven(replica: Replica, now: datetime, *, first: bool) -> bool:
    """Whether it serves: its job had a real completion, and the first of its revision has gone on well for FIRST_S."""
    job = replica.serve_job
    if replica.state != ReplicaState.READY or (job is not None and job.state != JobState.SUCCEEDED):
        return False
    return not first or (replica.ready_at is not None and now - replica.ready_at >= timedelta(seconds=FIRST_S))


def running(replica: Replica) -> int | None:
    """Requests that it works on or keeps waiting, None where that is not known now."""
    said = replica_live.read([replica.pk]).get(replica.pk)
    known = [said["metrics"].get(name) for name in ("running", "waiting")] if said else []
    counted = [value for value in known if value is not None]
    return int(sum(counted)) if counted else None


def failing(replica: Replica) -> tuple[int, int] | None:
    """(answers that were errors, all answers) of one that fails too many of its requests; None of one that does not, or
    that tells nothing."""
    said = replica_live.read([replica.pk]).get(replica.pk)
    failed, done = (said["metrics"].get(name) for name in ("errors_total", "requests_total")) if said else (None, None)
    if failed is None or done is None:
        return None
    errors, served = int(failed), int(done)
    many = errors >= LEAST_ERRORS and errors > MOST_FAILING * (errors + served)
    return (errors, errors + served) if many else None


def is_drained(replica: Replica, now: datetime, count: int | None) -> bool:
    """Whether it may be ended: nothing runs any more, or its time is over."""
    until = replica.drain_until
    if until is None or now >= until:
        return True
    began = until - timedelta(seconds=replica.deployment.drain_s)
    return count == 0 and now - began >= timedelta(seconds=GATEWAY_S)
