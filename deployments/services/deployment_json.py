"""A deployment as page, REST and topic show it, in one shape. Secrets (the engines' API key) are never in it.

`reason` is in the reader's language and `reasons` [zh, en], as with jobs. Numbers of engines are those heard within
replica_live.FRESH_S, None where that is not known; `heard` is False for a replica of which nothing is heard any more:
its `state` is then the last that was, and the page shows it grey.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from console.language import pick
from deployments.models import GONE, SERVING, Deployment, Replica, ReplicaState, Revision
from deployments.services import schedules

SUMMED = ("running", "waiting", "prompt_tokens_s", "generation_tokens_s", "requests_total")
AVERAGED = ("kv_pct", "ttft_ms", "tpot_ms")
ENDED_SHOWN = 20
STATES = ("stopped", "stopping", "rolling_out", "ready", "degraded", "scaling", "starting", "failed")
COMING = (ReplicaState.PLANNED, ReplicaState.STARTING, ReplicaState.LOADING)


def of(deployment: Deployment) -> dict[str, Any]:
    """The whole: {…, "revision": {…}, "replica_set": [replica …], "metrics": {…}}. A fixed number of queries."""
    from deployments.services import replica_live

    rows = list(_replicas([deployment.pk]))
    rows = [row for row in rows if row.state not in GONE] + _last_ended(rows)
    now = replica_live.read(row.pk for row in rows if row.state not in GONE)
    shown = [replica(row, now.get(row.pk, {})) for row in sorted(rows, key=lambda row: row.n)]
    return {
        **_brief(deployment, rows, now),
        "notes": deployment.notes,
        "revision": revision(deployment.revision) if deployment.revision else None,
        "replica_set": shown,
        "servers": deployment.servers,
        "schedule": deployment.schedule,
        "drain_s": deployment.drain_s,
        "replace_lost": deployment.replace_lost,
    }


def of_many(deployments: Iterable[Deployment]) -> list[dict[str, Any]]:
    """What a list shows of each, without its replicas. Two queries, however many there are."""
    from deployments.services import replica_live

    found = list(deployments)
    by_deployment: dict[int, list[Replica]] = {row.pk: [] for row in found}
    for row in _replicas(by_deployment, brief=True):
        by_deployment[row.deployment_id].append(row)
    now = replica_live.read(row.pk for rows in by_deployment.values() for row in rows if row.state not in GONE)
    return [_brief(row, by_deployment[row.pk], now) for row in found]


def rows() -> Any:
    """Deployments with what `of` and `of_many` need at hand."""
    return Deployment.objects.present().select_related("revision__artifact", "revision__by", "owner")


def _replicas(deployments: Iterable[int], *, brief: bool = False) -> Any:
    found = Replica.objects.filter(deployment__in=list(deployments)).order_by("deployment", "n")
    if brief:
        return found.only("deployment_id", "n", "state", "revision_id", "ready_at", "ended_at")
    return found.select_related("server", "revision", "serve_job", "stop_job")


def _last_ended(rows: Iterable[Replica]) -> list[Replica]:
    return [row for row in rows if row.state in GONE][-ENDED_SHOWN:]


def _brief(deployment: Deployment, rows: list[Replica], now: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.state] = counts.get(row.state, 0) + 1
    of_revision = deployment.revision
    return {
        "id": deployment.pk,
        "name": deployment.name,
        "title": deployment.title,
        "labels": deployment.labels,
        "owner": deployment.owner.username if deployment.owner else None,
        "simulated": deployment.simulated,
        "state": state_of(deployment, rows),
        "replicas": deployment.replicas,
        "wished": deployment.wished,
        "ready": sum(row.state in SERVING for row in rows),
        "counts": counts,
        "stopped": deployment.stopped,
        "paused": deployment.paused,
        "spread": deployment.spread,
        "model": of_revision.artifact.name if of_revision and of_revision.artifact else None,
        "revision_n": of_revision.n if of_revision else None,
        "rollout": rollout(deployment.rollout),
        "next_change": schedules.next_change(deployment, timezone.now()),
        "reason": pick(deployment.reason) or None,
        "reasons": deployment.reason,
        "metrics": metrics(now.get(row.pk) for row in rows if row.state in (*SERVING, ReplicaState.DRAINING)),
        "created_at": iso(deployment.created_at),
    }


def state_of(deployment: Deployment, rows: Iterable[Replica]) -> str:
    """One of STATES."""
    rows = list(rows)
    there = [row for row in rows if row.state not in GONE]
    serving = sum(row.state in SERVING for row in there)
    if not deployment.wished:
        return "stopping" if there else "stopped"
    if deployment.rollout:
        return "rolling_out"
    if serving >= deployment.wished:
        return "degraded" if any(row.state == ReplicaState.DEGRADED for row in there) else "ready"
    failed = _has_failed(deployment, rows)
    if serving:
        return "scaling" if not failed and _is_growing(deployment, there) else "degraded"
    return "failed" if failed and not there else "starting"


def _has_failed(deployment: Deployment, rows: list[Replica]) -> bool:
    """Since it was last tried."""
    tried = deployment.tried_at or deployment.created_at
    return any(row.state == ReplicaState.FAILED and row.ended_at and row.ended_at >= tried for row in rows)


def _is_growing(deployment: Deployment, there: list[Replica]) -> bool:
    """Nothing is ill: those that serve go on serving while others start for the first time. One that has served and
    starts anew is a loss, and so is one that finds no room."""
    if any(row.state == ReplicaState.DEGRADED or (row.state in COMING and row.ready_at) for row in there):
        return False
    return deployment.reason is None


def metrics(said: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Sums and means over the replicas that are known, `known` being how many; None where none of them knows."""
    known = [item["metrics"] for item in said if item]
    made: dict[str, Any] = {"known": len(known)}
    for name in (*SUMMED, *AVERAGED):
        values = [item[name] for item in known if item.get(name) is not None]
        total = round(sum(values), 3) if values else None
        made[name] = total if name in SUMMED or total is None else round(total / len(values), 3)
    return made


def rollout(kept: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What of `Deployment.rollout` is shown; its shape: services/rollout.py."""
    if not kept:
        return None
    names = ("why", "phase", "to", "from", "how", "of", "by", "since", "paused", "now", "left")
    return {**{name: kept.get(name) for name in names}, "reason": pick(kept.get("reason")) or None,
            "reasons": kept.get("reason")}  # fmt: skip


def revision(row: Revision) -> dict[str, Any]:
    """Needs `artifact` and `by` at hand."""
    model = row.artifact
    return {
        "n": row.n,
        "artifact": {"id": model.pk, "name": model.name} if model else None,
        "fingerprint": row.fingerprint,
        "settings": row.settings,
        "note": row.note,
        "by": row.by.username if row.by else None,
        "created_at": iso(row.created_at),
    }


def replica(row: Replica, now: Mapping[str, Any] | None) -> dict[str, Any]:
    """One replica; needs server, revision and jobs at hand. `now` is from replica_live.read, {} where it is not heard;
    None where the caller does not know."""
    heard = not row.server.is_offline if now is None else bool(now)
    return {
        "id": row.pk,
        "n": row.n,
        "name": row.name,
        "revision": row.revision.n,
        "state": row.state,
        "heard": heard if row.state not in (*GONE, ReplicaState.PLANNED, ReplicaState.STARTING) else None,
        "heard_at": iso(row.heard_at),
        "server": row.server.name,
        "npus": row.npus,
        "nodes": row.nodes,
        "address": row.address,
        "port": row.port,
        "route": row.route,
        "path": row.path,
        "progress": row.progress,
        "reason": pick(row.reason) or None,
        "reasons": row.reason,
        "findings": row.findings,
        "why": row.why,
        "facts": row.engine.get("facts") or {},
        "restarts": row.restarts,
        "serve_job": row.serve_job_id,
        "stop_job": row.stop_job_id,
        "metrics": now["metrics"] if now else None,
        "created_at": iso(row.created_at),
        "ready_at": iso(row.ready_at),
        "drain_until": iso(row.drain_until),
        "cut": row.cut,
        "ended_at": iso(row.ended_at),
    }


def iso(at: datetime | None) -> str | None:
    return at.isoformat(timespec="milliseconds") if at else None
