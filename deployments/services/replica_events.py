"""What happens to replicas, as their servers tell: events of the engine's log, its present state in samples, and ends
of the jobs that start and stop it. Folded into the replica's row, which is written only where something has changed.

Two clocks never mix: what a keeper says is ordered by the keeper's own time (`engine["at"]`, epoch seconds), so that a
sample made before an event and read after it sets nothing back. A replica that is gone stays gone.
"""

from datetime import datetime
from typing import Any

from django.utils import timezone

from console import alerts, untrusted
from deployments.models import GONE, SERVING, EngineLog, Job, JobState, Replica, ReplicaState
from deployments.models.job import ENDED
from deployments.services import reconcile_asking, replica_now
from deployments.steps import Text

SET_BACK_S = 60  # a keeper whose time is further behind than this has had its clock set, and is not late
ABORTED = (JobState.FAILED, JobState.CANCELLED)
STOPPED_BY_HAND = Text("引擎在服务器上被停止，不是由控制台停止的", "It was stopped on its server, not by the console")
NO_REASON_KNOWN = Text("原因未知", "the reason is not known")
NO_REASON = Text("启动作业没有成功", "The job that was to start it did not succeed")
ROW = (
    "state", "progress", "reason", "engine", "restarts", "ready_at", "ended_at", "heard_at", "drain_until", "cut",
)  # fmt: skip


def heard(replica: Replica, now: dict[str, Any]) -> bool:
    """Take a whole state, as `replica_now.clean` gave it; whether the row has changed. Under the replica's lock."""
    at, last = now["at"], _last(replica)
    if at is not None and last - SET_BACK_S <= at < last:
        return False
    more = {name: now[name] for name in ("pid", "started_at", "restarts") if now[name] is not None}
    changed = _change(replica, now["state"], now["progress"], now["reason"], now["facts"], at, more)
    if changed:
        replica.save(update_fields=ROW)
    return changed


def fold(log: EngineLog, event: dict[str, Any], at: datetime) -> bool:
    """Take one event of a piece of the log, whose `replica` is locked; whether that has changed. Whoever called saves
    it (ROW), once: a log may hold thousands of events."""
    replica, said_at = log.replica, at.timestamp()
    if said_at < _last(replica):
        return False
    if event.get("e") == "started":
        pid = untrusted.whole(event.get("pid"), replica_now.MOST_COUNT)
        why = replica.reason if replica.state == ReplicaState.LOADING else None  # it may be started anew
        return _change(replica, "loading", None, why, {}, said_at, {"pid": pid})
    if event.get("e") == "engine" and event.get("state") in replica_now.STATES:
        progress, reason = replica_now.progress(event.get("progress")), replica_now.pair(event.get("reason"))
        return _change(replica, event["state"], progress, reason, replica_now.facts(event.get("facts")), said_at, {})
    return False


def node_failed(replica: Replica, server: int, reason: list[str] | None) -> bool:
    """Another of its servers has given its part up, and the rest does not serve without it; whether the row has
    changed. While a job starts it, that job's end says so. Under the replica's lock."""
    job = replica.serve_job
    if replica.state in (*GONE, ReplicaState.DRAINING) or (job is not None and job.state not in ENDED):
        return False
    before = values(replica)
    name = next((str(node.get("name", "")) for node in replica.nodes if node["server"] == server), "")
    zh, en = reason or NO_REASON_KNOWN
    fail(replica, [f"节点 {name}：{zh}", f"Node {name}: {en}"])
    return _save_changed(replica, before)


def job_ended(job: Job, attempt: object = None) -> None:
    """A job has ended that may have started or stopped a replica. Within the transaction that holds its server."""
    rows = Replica.objects.select_for_update(no_key=True, of=("self",)).order_by("pk")
    for replica in [*rows.filter(serve_job=job), *rows.filter(stop_job=job)]:
        if replica.serve_job_id == job.pk:
            replica.serve_job = job
        if replica.stop_job_id == job.pk:
            replica.stop_job = job
        if settle(replica):
            reconcile_asking.ask(replica.deployment_id)


def settle(replica: Replica) -> bool:
    """Let the row follow from how its jobs have ended; whether it has changed. Under the replica's lock."""
    before = values(replica)
    stop, serve = _stopping(replica), replica.serve_job
    if stop is not None and stop.state in ENDED:
        _stop_ended(replica, stop)
    elif serve is not None and serve.state in ENDED and stop is None:
        _serve_ended(replica, serve)
    return _save_changed(replica, before)


def _stopping(replica: Replica) -> Job | None:
    """The job by which it is being stopped. Over several servers there is one on each, queued in the order of their
    ids: where one has done its work, the next that has not is what the replica waits for, and fails by."""
    stop = replica.stop_job
    if stop is None or stop.state != JobState.SUCCEEDED or not replica.nodes:
        return stop
    others = Job.objects.filter(kind=stop.kind, params__replica=replica.pk, pk__gt=stop.pk)
    following = others.exclude(state=JobState.SUCCEEDED).order_by("pk").first()
    if following is not None:
        replica.stop_job = stop = following
        replica.save(update_fields=["stop_job"])
    return stop


def _serve_ended(replica: Replica, job: Job) -> None:
    begins = replica.state in (ReplicaState.PLANNED, ReplicaState.STARTING)
    if job.state in ABORTED and replica.state not in GONE:
        fail(replica, job.reason or list(NO_REASON))
    elif job.state == JobState.SUCCEEDED and (begins or _loads_first(replica)):
        _ready(replica)  # the job has had a real completion of it; the sample that says so may be on its way


def _loads_first(replica: Replica) -> bool:
    return replica.state == ReplicaState.LOADING and replica.ready_at is None


def _stop_ended(replica: Replica, job: Job) -> None:
    if job.state == JobState.SUCCEEDED:
        alerts.resolve("replica-not-stopped", f"replica:{replica.pk}")
        if replica.state not in GONE:
            replica.state, replica.reason, replica.progress = ReplicaState.STOPPED, None, None
            replica.ended_at = timezone.now()
    elif job.state in ABORTED and replica.engine.get("not_stopped") != job.pk:
        replica.engine = {**replica.engine, "not_stopped": job.pk}  # said once for each job
        replica.reason = replica.reason if replica.state in GONE else job.reason
        what = (
            f"部署 {replica.deployment.name} 的副本 {replica.n} 没有停下来",
            f"Replica {replica.n} of {replica.deployment.name} was not stopped",
        )
        do = (f"打开作业 #{job.pk} 查看原因，再次停止该副本", f"Open job #{job.pk} for the reason, then stop it again")
        alerts.fire("replica-not-stopped", f"replica:{replica.pk}", what=what, do=do)


def _change(
    replica: Replica, state: str, progress: Any, reason: Any, facts: dict[str, Any], at: float | None,
    more: dict[str, Any],
) -> bool:  # fmt: skip
    if replica.state in GONE:
        return False
    before = values(replica)
    _go(replica, state, reason)
    replica.progress = progress if replica.state in (ReplicaState.STARTING, ReplicaState.LOADING) else None
    replica.restarts = more.pop("restarts", replica.restarts)
    # What it has printed in its life stays true of it until it starts anew.
    kept = {} if more.get("pid") not in (None, replica.engine.get("pid")) else replica.engine.get("facts", {})
    replica.engine = {**replica.engine, **more, "facts": {**kept, **facts}}
    changed = values(replica) != before
    if changed and at is not None:
        replica.engine = {**replica.engine, "at": at}
        replica.heard_at = timezone.now()
    return changed


def _go(replica: Replica, state: str, reason: list[str] | None) -> None:
    """Where the engine's own state leads to: a replica that drains does so until its job has stopped it, and one that
    a job is starting or stopping fails or stops by that job's end."""
    if replica.state == ReplicaState.DRAINING:
        return
    job = replica.serve_job
    under_way = job is not None and job.state not in ENDED
    if state in ("failed", "stopped") and under_way:
        replica.reason = reason or replica.reason
    elif state == "failed":
        fail(replica, reason)
    elif state == "stopped":
        fail(replica, reason or list(STOPPED_BY_HAND))
    elif state == "ready":
        _ready(replica)
    elif state == "degraded":
        replica.state, replica.reason = ReplicaState.DEGRADED, reason
    elif not (state == "starting" and replica.state == ReplicaState.LOADING):
        replica.state, replica.reason = ReplicaState(state), reason


def _ready(replica: Replica) -> None:
    if replica.state not in SERVING or replica.ready_at is None:
        replica.ready_at = timezone.now()
    replica.state, replica.reason, replica.progress = ReplicaState.READY, None, None


def fail(replica: Replica, reason: list[str] | None) -> None:
    """It has failed for good: whoever called saves the row, and reconcile gives its place back."""
    replica.state, replica.reason, replica.progress = ReplicaState.FAILED, reason, None
    replica.ended_at = timezone.now()


def values(replica: Replica) -> tuple[Any, ...]:
    """What of the row is told; the keeper's time alone is no change."""
    engine = {name: value for name, value in replica.engine.items() if name != "at"}
    return (replica.state, replica.progress, replica.reason, engine, replica.restarts, replica.ready_at)


def _save_changed(replica: Replica, before: tuple[Any, ...]) -> bool:
    if values(replica) == before:
        return False
    replica.save(update_fields=ROW)
    return True


def _last(replica: Replica) -> float:
    return float(replica.engine.get("at") or 0.0)
