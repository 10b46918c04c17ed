"""From one revision to another, replica by replica, and back where the new one fails.

`Deployment.rollout` is all there is of it, so that it goes on after a restart of the console:
    {"why": revision | rollback | restart, "phase": first | rest | back | stuck, "to": n, "from": n or null,
     "how": in_place | surge, "of": replicas that are to be replaced, "by": name, "since": ISO time,
     "paused": bool, "reason": [zh, en] or null, "place": server that was given up last,
     "now": replica id, "left": [replica ids]}        the last two of a restart alone
`step` decides and changes nothing but this; reconcile acts.
"""

from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from console import alerts, audit
from console.models import User
from deployments.models import GONE, Deployment, Replica, ReplicaState, Revision
from deployments.services import picture, replica_causes
from deployments.services.picture import Picture
from deployments.steps import Text

MOVING = ("first", "rest", "back")
IN_PLACE, SURGE = "in_place", "surge"


@dataclass(frozen=True)
class Action:
    """What is to be done next: a verb of reconcile.VERBS. `wait`: nothing, and nobody else does anything either."""

    verb: str
    replica: Replica | None = None
    note: list[str] | None = None


WAIT = Action("wait")


def begin(
    deployment: Deployment, to: Revision, why: str, *, by: User | None, how: str = IN_PLACE, of: int = 0,
    before: Revision | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A rollout as it begins; the caller saves the row."""
    return {
        "why": why, "phase": "first", "to": to.n, "from": before.n if before else None, "how": how, "of": of,
        "by": by.username if by else None, "since": timezone.now().isoformat(timespec="seconds"), "paused": False,
        "reason": None, "place": "", "now": None, "left": [],
    }  # fmt: skip


def begin_restart(deployment: Deployment, replicas: list[Replica], *, by: User) -> dict[str, Any]:
    """The same for replicas that are to start anew as they are."""
    assert deployment.revision is not None
    made = begin(deployment, deployment.revision, "restart", by=by, of=len(replicas))
    return {**made, "phase": "rest", "left": [row.pk for row in replicas]}


def is_moving(deployment: Deployment) -> bool:
    """Whether one is under way, be it paused."""
    return deployment.rollout is not None and deployment.rollout["phase"] in MOVING


def step(seen: Picture) -> Action | None:
    """What the rollout wants next, WAIT, or None where the wish alone decides. May change `rollout`, not its row."""
    kept = seen.deployment.rollout
    if not kept:
        return None
    if kept["paused"] or kept["phase"] == "stuck":
        return WAIT
    if kept["why"] == "restart" and kept["phase"] != "back":
        return _restart(seen)
    if bad := _bad(seen):
        return Action("fail_rollout", bad, bad.reason or _of_errors(bad))
    return _replace(seen)


def _bad(seen: Picture) -> Replica | None:
    """A new replica that is no good: failed, or degraded or restarted while it was the first."""
    if seen.failed:
        return seen.failed[0]
    if seen.rollout["phase"] != "first":
        return None
    return next((row for row in seen.news if row.ready_at and _has_errors(row)), None)


def _has_errors(replica: Replica) -> bool:
    return replica.state == ReplicaState.DEGRADED or replica.restarts > 0 or picture.failing(replica) is not None


def _of_errors(replica: Replica) -> list[str] | None:
    """Why one that serves is no good: too many of its answers were errors."""
    counted = picture.failing(replica)
    if counted is None:
        return None
    errors, answers = counted
    return [f"{answers} 个请求中有 {errors} 个以错误结束。", f"{errors} of {answers} requests ended in an error."]


def _replace(seen: Picture) -> Action | None:
    kept, news, olds = seen.rollout, seen.news, seen.olds
    first = kept["phase"] in ("first", "back")
    unproven = [row for row in news if not picture.is_proven(row, seen.now, first=first and row is news[0])]
    if unproven:
        return WAIT
    if news and kept["phase"] == "first":
        return Action("first_proven")
    if any(row.revision_id != seen.deployment.revision_id for row in seen.draining):
        return WAIT
    missing = seen.deployment.wished - len(seen.live)
    if missing > 0:
        return Action("place")  # one at a time, which has to prove itself
    if not olds:
        return Action("end_rollout")
    if kept["how"] == SURGE and missing == 0:
        return Action("surge")
    return Action("drain", worst(olds))


def worst(rows: list[Replica]) -> Replica:
    """Whom to take first: who does not serve, then who began last."""
    return min(rows, key=lambda row: (row.state == ReplicaState.READY, row.state == ReplicaState.DEGRADED, -row.n))


def _restart(seen: Picture) -> Action | None:
    kept = seen.rollout
    rows = {row.pk: row for row in seen.replicas}
    current = rows.get(kept["now"]) if kept["now"] else None
    if kept["now"] and (current is None or current.state in GONE):
        return Action("fail_rollout", current, current.reason if current else None)
    if current is not None and current.state == ReplicaState.DRAINING:
        return None  # until it is drained; what else is wished goes on
    if current is not None and not picture.is_proven(current, seen.now, first=False):
        return WAIT
    waiting = [pk for pk in kept["left"] if pk in rows and rows[pk].state not in (*GONE, ReplicaState.DRAINING)]
    return Action("drain_to_restart", rows[waiting[0]]) if waiting else Action("end_rollout")


# ---------- what reconcile does about it, under the deployment's lock ----------


def end(deployment: Deployment) -> None:
    """It has come to its end: all replicas are as wished."""
    kept = deployment.rollout or {}
    deployment.rollout = None
    deployment.save(update_fields=["rollout"])
    audit.record(None, "deployment.rolled_out", deployment, revision=kept.get("to"), why=kept.get("why"))
    if kept.get("phase") != "back":
        alerts.resolve("rollout-failed", f"deployment:{deployment.pk}")


def note(deployment: Deployment, **changes: Any) -> None:
    """Change these of its fields."""
    deployment.rollout = {**(deployment.rollout or {}), **changes}
    deployment.save(update_fields=["rollout"])


def fail(deployment: Deployment, replica: Replica | None, reason: list[str] | None) -> None:
    """The new one is no good: go back to the revision before by ourselves, or stop where there is none to go to."""
    kept = deployment.rollout or {}
    cause = replica_causes.of(replica) if replica else None
    words = _why(replica, list(cause.what) if cause else reason)
    link = cause.link if cause else f"/deployments/{deployment.name}/"
    before = deployment.revisions.filter(n=kept["from"]).first() if kept.get("from") else None
    if before is None or kept["phase"] == "back" or kept["why"] == "restart":
        note(deployment, phase="stuck", reason=list(words), now=None)
        _tell(deployment, words, link, back=None)
        return
    deployment.revision = before
    deployment.tried_at = timezone.now()
    deployment.rollout = {
        **kept, "phase": "back", "to": before.n, "from": kept["to"], "reason": list(words), "how": IN_PLACE,
    }  # fmt: skip
    deployment.save(update_fields=["revision", "tried_at", "rollout"])
    audit.record(None, "deployment.went_back", deployment, revision=before.n, reason=words.en)
    _tell(deployment, words, link, back=before.n)


def _why(replica: Replica | None, reason: list[str] | None) -> Text:
    zh, en = reason or ["原因未知", "the reason is not known"]
    if replica is None:
        return Text(f"副本已不在：{zh}", f"The replica is gone: {en}")
    if replica.state == ReplicaState.DEGRADED:
        return Text(
            f"副本 {replica.n} 就绪后探测失败：{zh}", f"Replica {replica.n} was ready, then its probes failed: {en}"
        )
    if replica.state != ReplicaState.FAILED and not replica.restarts:
        return Text(f"副本 {replica.n} 就绪后：{zh}", f"Replica {replica.n} was ready, then: {en}")
    if replica.state != ReplicaState.FAILED:
        after = Text(f"：{zh}", f": {en}") if reason else Text("", "")
        return Text(
            f"副本 {replica.n} 就绪后又自行重启{after.zh}",
            f"Replica {replica.n} was ready, then started anew by itself{after.en}",
        )
    return Text(f"副本 {replica.n} 失败：{zh}", f"Replica {replica.n} failed: {en}")


def _tell(deployment: Deployment, why: Text, link: str, *, back: int | None) -> None:
    kept = deployment.rollout or {}
    n = kept.get("from") if back else kept.get("to")
    if back:
        what = (
            f"部署 {deployment.name} 的版本 {n} 没有成功，正在退回版本 {back}：{why.zh}",
            f"Revision {n} of {deployment.name} did not succeed, and it goes back to revision {back}. {why.en}",
        )
    else:
        what = (
            f"部署 {deployment.name} 的发布停住了（版本 {n}）：{why.zh}",
            f"The rollout of {deployment.name} (revision {n}) has stopped. {why.en}",
        )
    do = (
        "打开部署页面查看副本日志，然后修改设置或回退",
        "Open its page and the replica's log, then change it or go back",
    )
    alerts.fire("rollout-failed", f"deployment:{deployment.pk}", what=what, do=do, link=link)
