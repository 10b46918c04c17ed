"""Wished against real: one deployment at a time is looked at until there is nothing more to do now.

Each thing that is done is a transaction of its own under the deployment's lock, decided anew under it, so that two at
once do nothing twice and a console that dies in between goes on where it was. Locks: deployment, servers, replica.
Who changes something calls `ask`; ingest sweeps those that are not settled, and cron looks at all of them.
"""

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable
from datetime import timedelta

import redis
from django.db import transaction
from django.utils import timezone

from console import alerts, audit, doubt, live, streams
from console.errors import ConsoleError
from console.models import User
from console.redis import client
from deployments.models import GONE, SERVING, Deployment, Job, JobState, Replica, ReplicaState
from deployments.row_locks import hold_servers, lock_deployment, lock_replica
from deployments.services import (
    deployment_json,
    picture,
    ports,
    reconcile_reasons,
    replica_alerts,
    replica_events,
    replica_place,
    reservations,
    rollout,
    schedules,
    serve_jobs,
    serving_hooks,
)
from deployments.services.picture import Picture
from deployments.services.reconcile_asking import ask
from deployments.services.reconcile_sweep import look_at_all, sweep, unsettled
from deployments.services.rollout import Action

__all__ = ["ask", "look", "look_at_all", "run", "sweep", "unsettled"]

log = logging.getLogger(__name__)
MOST_ACTIONS = 200
LATER_S = 30
WHERE = ("revision_id", "servers", "spread")  # what room was looked for by
JUST_S = 30  # a server is read every few seconds, and a slow one more rarely


class CannotNow(Exception):
    """A thing to be done was refused, in words; it is tried again later."""

    def __init__(self, reason: list[str]) -> None:
        super().__init__(reason[1])
        self.reason = reason


serve_jobs.on_end(replica_events.job_ended)


def run(pk: int) -> None:
    """What the console's worker does: whoever asks from here on asks for another look."""
    with contextlib.suppress(redis.RedisError):
        client().delete(streams.reconcile_asked(pk))
    look(pk)


def look(pk: int) -> list[str]:
    """Do what is to be done now; the verbs that were done, in order."""
    done: list[str] = []
    reason: list[str] | None = None
    for _turn in range(MOST_ACTIONS):
        try:
            verb = _once(pk)
        except CannotNow as refused:
            reason = refused.reason
            break
        if verb is None:
            break
        done.append(verb)
        tell(pk)
    _say(pk, reason)
    _tell_gateways(pk)
    return done


def _once(pk: int) -> str | None:
    """Do one thing; its verb, or None where there is nothing to do now. Raises CannotNow."""
    with transaction.atomic():
        seen = _picture(pk)
        if seen is None:
            return None
        action = decide(seen)
        if action is None or action.verb == "wait":
            return None
        if action.verb not in ("place", "surge"):
            VERBS[action.verb](seen, action)
            return action.verb
    # Looking for room takes a while and holds nobody up; it is decided again before anything is taken.
    try:
        replica_place.place(seen, lambda: _still(seen, action))
    except replica_place.NoRoom as refused:
        if action.verb == "surge":
            return _without_surge(pk)
        raise CannotNow(refused.reason) from refused
    return action.verb


def _picture(pk: int) -> Picture | None:
    """The deployment under its lock; None where there is none, or where the console doubts itself."""
    try:
        deployment = lock_deployment(pk)
    except Deployment.DoesNotExist:
        return None
    return None if doubt.is_on(deployment.simulated) else picture.look(deployment)


def _still(before: Picture, action: Action) -> Picture | None:
    """The deployment under its lock where that is still to be done, within the caller's transaction: room that was
    found for other settings, or on servers that it may use no longer, is none."""
    seen = _picture(before.deployment.pk)
    if seen is None or any(getattr(seen.deployment, name) != getattr(before.deployment, name) for name in WHERE):
        return None
    now = decide(seen)
    return seen if now is not None and now.verb == action.verb else None


def _without_surge(pk: int) -> str:
    with transaction.atomic():
        rollout.note(lock_deployment(pk), how=rollout.IN_PLACE)
    return "no_surge"


# ---------- what is to be done ----------


def decide(seen: Picture) -> Action | None:
    """The next thing to do, or None. It changes nothing."""
    for row in seen.replicas:
        if picture.to_settle(row):
            return Action("settle", row)
        if _is_abandoned(row):
            return Action("abandon", row)
    if action := next(filter(None, map(_of_gone, seen.replicas)), None):
        return action
    if seen.deployment.paused:
        return None
    if schedules.due(seen.deployment, seen.now):
        return Action("schedule")
    if action := next(filter(None, (_of_draining(seen, row) for row in seen.replicas)), None):
        return action
    if seen.deployment.replace_lost and seen.lost:
        return Action("give_up", seen.lost[0])
    if not seen.deployment.wished and seen.deployment.rollout:
        return Action("end_rollout")
    if action := rollout.step(seen):
        return action
    return _of_number(seen)


def _is_abandoned(row: Replica) -> bool:
    """Whether its server was decommissioned under it, and nobody sees to the rest of it yet."""
    if row.state in GONE or not row.server.is_gone:
        return False
    return row.stop_job is None or row.stop_job.server_id == row.server_id


def _of_gone(row: Replica) -> Action | None:
    """Its place is given back once nothing of it can run any more: a keeper that gave up is told to stay away first."""
    if row.state not in GONE or not getattr(row, "holds", False):
        return None
    if row.server.is_gone:
        return Action("release", row)
    if row.stop_job is not None:
        return Action("release", row) if row.stop_job.state == JobState.SUCCEEDED else None
    never_began = row.serve_job is None or row.serve_job.state in replica_events.ABORTED
    if row.state == ReplicaState.STOPPED or never_began:
        return Action("release", row)
    return None if row.server.is_offline else Action("clean_up", row)


def _of_draining(seen: Picture, row: Replica) -> Action | None:
    if row.state != ReplicaState.DRAINING or row.stop_job is not None or row.server.is_offline:
        return None
    if not picture.is_drained(row, seen.now, picture.running(row)):
        return None
    return Action("restart" if seen.rollout.get("now") == row.pk else "stop", row)


def _of_number(seen: Picture) -> Action | None:
    wished, live_ones = seen.deployment.wished, seen.live
    if len(live_ones) > wished:
        return Action("drain", rollout.worst(seen.olds or live_ones))
    return Action("place") if len(live_ones) + len(seen.failed) < wished else None


# ---------- doing it, under the deployment's lock ----------


def _settle(seen: Picture, action: Action) -> None:
    replica_events.settle(lock_replica(_of(action).pk))


def _release(seen: Picture, action: Action) -> None:
    row = _of(action)
    hold_servers(row.server_ids)
    reservations.release(row)
    ports.release(replica=row)


def _drain(seen: Picture, action: Action) -> None:
    row = lock_replica(_of(action).pk)
    serves = row.state in SERVING
    row.state, row.progress = ReplicaState.DRAINING, None
    row.drain_until = seen.now + timedelta(seconds=seen.deployment.drain_s if serves else 0)
    row.save(update_fields=["state", "progress", "drain_until"])
    if seen.deployment.rollout:
        rollout.note(seen.deployment, place=row.server.name)


def _drain_to_restart(seen: Picture, action: Action) -> None:
    row = _of(action)
    left = [pk for pk in seen.rollout["left"] if pk != row.pk]
    _drain(seen, action)
    rollout.note(seen.deployment, now=row.pk, left=left)


def _give_up(seen: Picture, action: Action) -> None:
    row = lock_replica(_of(action).pk)
    row.state, row.drain_until = ReplicaState.DRAINING, seen.now
    row.reason = list(reconcile_reasons.lost(row, replaced=True))
    row.save(update_fields=["state", "drain_until", "reason"])
    audit.record(None, "replica.given_up", seen.deployment, replica=row.n, server=row.server.name)


def _abandon(seen: Picture, action: Action) -> None:
    """Its server is no more: it counts as stopped. What of it runs on other servers is ended first."""
    row = lock_replica(_of(action).pk)
    job = _job(row, lambda by: serve_jobs.stop(row, by=by, now=True)) if row.nodes else None
    row.stop_job, row.progress, row.drain_until = job, None, None
    row.state = ReplicaState.STOPPED if job is None else ReplicaState.DRAINING
    row.ended_at = seen.now if job is None else None
    row.reason = list(reconcile_reasons.server_gone(row))
    alerts.resolve("replica-not-stopped", f"replica:{row.pk}")
    row.save(update_fields=["stop_job", "progress", "drain_until", "state", "ended_at", "reason"])
    audit.record(None, "replica.given_up", seen.deployment, replica=row.n, server=row.server.name)


def _stop(seen: Picture, action: Action) -> None:
    row = lock_replica(_of(action).pk)
    count = picture.running(row)
    job = _job(row, lambda by: serve_jobs.stop(row, by=by, now=True))
    Replica.objects.filter(pk=row.pk).update(stop_job=job, cut=count)


def _clean_up(seen: Picture, action: Action) -> None:
    row = lock_replica(_of(action).pk)
    job = _job(row, lambda by: serve_jobs.stop(row, by=by, now=True))
    Replica.objects.filter(pk=row.pk).update(stop_job=job)


def _restart(seen: Picture, action: Action) -> None:
    row = lock_replica(_of(action).pk)
    count = picture.running(row)
    job = _job(row, lambda by: serve_jobs.restart(row, by=by))
    Replica.objects.filter(pk=row.pk).update(
        serve_job=job, state=ReplicaState.STARTING, drain_until=None, ready_at=None, reason=None, progress=None,
        cut=count,
    )  # fmt: skip


def _job(row: Replica, make: Callable[[User], Job | None]) -> Job | None:
    """A job of the console's own, in the name of who made the revision. Raises CannotNow."""
    by = acting_for(row.deployment)
    try:
        return make(by)
    except ConsoleError as error:
        raise CannotNow(list(reconcile_reasons.refused(row.server.name, error))) from error


def acting_for(deployment: Deployment) -> User:
    """In whose name jobs are queued. Raises CannotNow where there is nobody any more."""
    by = (deployment.revision.by if deployment.revision else None) or deployment.owner
    if by is None:
        raise CannotNow(list(reconcile_reasons.NOBODY))
    return by


def _schedule(seen: Picture, action: Action) -> None:
    found = schedules.due(seen.deployment, seen.now)
    assert found is not None
    at, replicas = found
    deployment, before = seen.deployment, seen.deployment.replicas
    deployment.schedule_at, deployment.replicas = at, replicas
    deployment.save(update_fields=["schedule_at", "replicas"])
    if replicas != before:
        audit.record(None, "deployment.scaled", deployment, replicas=replicas, before=before, schedule=at.isoformat())


VERBS: dict[str, Callable[[Picture, Action], None]] = {
    "settle": _settle,
    "abandon": _abandon,
    "release": _release,
    "clean_up": _clean_up,
    "schedule": _schedule,
    "drain": _drain,
    "drain_to_restart": _drain_to_restart,
    "stop": _stop,
    "restart": _restart,
    "give_up": _give_up,
    "first_proven": lambda seen, action: rollout.note(seen.deployment, phase="rest"),
    "fail_rollout": lambda seen, action: rollout.fail(seen.deployment, action.replica, action.note),
    "end_rollout": lambda seen, action: rollout.end(seen.deployment),
}


def _of(action: Action) -> Replica:
    assert action.replica is not None
    return action.replica


# ---------- afterwards ----------


def _say(pk: int, refused: list[str] | None) -> None:
    """Keep why the wish is not met, and leave one that cannot be met alone for a while."""
    with transaction.atomic():
        seen = _picture(pk)
        if seen is None:
            return
        busy = bool(seen.draining) or rollout.is_moving(seen.deployment) or _has_just_stopped(seen.deployment)
        reason = (None if busy else refused) or reconcile_reasons.why(seen)
        changed = reason != seen.deployment.reason
        if changed:
            Deployment.objects.filter(pk=pk).update(reason=reason)
        _alert(seen, changed)
    with contextlib.suppress(redis.RedisError):
        if (refused or reason) and not busy:
            client().set(streams.reconcile_later(pk), 1, ex=LATER_S)
        else:
            client().delete(streams.reconcile_later(pk))
    if changed:
        tell(pk)


def _has_just_stopped(deployment: Deployment) -> bool:
    """Readings of its NPUs are from before it gave them back: that they are taken is no reason yet."""
    lately = timezone.now() - timedelta(seconds=JUST_S)
    return deployment.replica_set.filter(state=ReplicaState.STOPPED, ended_at__gte=lately).exists()


def _alert(seen: Picture, changed: bool) -> None:
    """A replica that failed and is not started again by itself is somebody's work; what is under way is not."""
    deployment, about = seen.deployment, f"deployment:{seen.deployment.pk}"
    if not seen.failed or rollout.is_moving(deployment):
        alerts.resolve(replica_alerts.FAILED, about)
        return
    if changed:
        replica_alerts.fire(seen.failed[-1])


def tell(pk: int) -> None:
    """Pages of the deployment get it anew, and lists read it again."""
    found = deployment_json.rows().filter(pk=pk).first()
    with contextlib.suppress(redis.RedisError):
        if found is not None:
            live.publish(f"deployment:{pk}", "deployment", deployment_json.of(found))
        live.publish("deployments", "moved", {"id": pk})


def _tell_gateways(pk: int) -> None:
    """Where other replicas may take requests than when they were told last. Outside of transactions."""
    deployment = Deployment.objects.select_related("revision").filter(pk=pk).first()
    if deployment is None:
        return
    rows = deployment.replica_set.filter(state__in=(*SERVING, ReplicaState.DRAINING)).order_by("pk")
    serving = list(rows.values_list("pk", "state", "address", "port"))
    digest = hashlib.sha256(json.dumps(serving).encode()).hexdigest()
    with contextlib.suppress(redis.RedisError):
        if (client().hget(streams.RECONCILE_TOLD, str(pk)) or b"").decode() == digest:
            return
    serving_hooks.changed(deployment)
    with contextlib.suppress(redis.RedisError):
        client().hset(streams.RECONCILE_TOLD, str(pk), digest)
