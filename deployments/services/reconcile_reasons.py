"""Why a deployment is not as it is wished, (zh, en)."""

from console import clock
from console.errors import ConsoleError
from deployments.models import JobState, Replica, ReplicaState
from deployments.services.picture import Picture
from deployments.steps import Text

NOBODY = Text(
    "建立此版本的用户已不存在，作业没有发起人；请由一位操作员建立新的版本",
    "Who made this revision is no user any more, so that jobs have no requester; an operator is to make a new revision",
)


def why(seen: Picture) -> list[str] | None:
    """The most important reason, None where the wish is met or is being met."""
    for found in (_paused(seen), _stuck(seen), _not_stopped(seen), _failed(seen), _lost(seen), _going_back(seen)):
        if found:
            return list(found)
    return None


def _paused(seen: Picture) -> Text | None:
    if seen.deployment.paused and len(seen.live) != seen.deployment.wished:
        return Text("部署已暂停：控制台不会自行启动或停止副本", "It is paused: the console starts and stops no replica")
    return None


def _stuck(seen: Picture) -> Text | None:
    kept = seen.rollout
    if kept.get("phase") != "stuck":
        return None
    zh, en = kept.get("reason") or ["", ""]
    return Text(f"发布停住了：{zh}", f"The rollout has stopped. {en}")


def _not_stopped(seen: Picture) -> Text | None:
    for row in seen.replicas:
        job = row.stop_job
        if job is not None and job.state in (JobState.FAILED, JobState.CANCELLED) and row.engine.get("not_stopped"):
            zh, en = row.reason or ["", ""]
            return Text(
                f"副本 {row.n} 在 {row.server.name} 上没有停下来（作业 #{job.pk}），它的 NPU 仍被占用。{zh}",
                f"Replica {row.n} on {row.server.name} was not stopped (job #{job.pk}); its NPUs stay taken. {en}",
            )
    return None


def _failed(seen: Picture) -> Text | None:
    if not seen.failed or len(seen.live) >= seen.deployment.wished:
        return None
    row = seen.failed[-1]
    zh, en = row.reason or ["原因未知", "the reason is not known"]
    return Text(
        f"副本 {row.n} 在 {row.server.name} 上失败，不会自动重来：{zh}",
        f"Replica {row.n} on {row.server.name} failed and is not started again by itself: {en}",
    )


def _lost(seen: Picture) -> Text | None:
    silent = [row for row in seen.live if row.server.is_offline and row.state != ReplicaState.PLANNED]
    return lost(silent[0], replaced=False) if silent else None


def lost(row: Replica, *, replaced: bool) -> Text:
    seen = row.server.last_seen_at
    since = clock.words(seen) if seen else "—"
    if replaced:
        return Text(
            f"{row.server.name} 自 {since} 起失联，已在别处另起一个副本；服务器恢复后会停止这一个",
            f"{row.server.name} has been silent since {since}, and another one is started in its place; "
            "this one is stopped when its server is back",
        )
    return Text(
        f"{row.server.name} 自 {since} 起失联；副本 {row.n} 可能仍在服务，因此没有另起副本",
        f"{row.server.name} has been silent since {since}; replica {row.n} may still serve there, so none is started "
        "in its place",
    )


def server_gone(row: Replica) -> Text:
    return Text(
        f"{row.server.name} 已退役，副本随之结束", f"{row.server.name} was decommissioned, and the replica with it"
    )


def _going_back(seen: Picture) -> Text | None:
    kept = seen.rollout
    if kept.get("phase") != "back" or not kept.get("reason"):
        return None
    zh, en = kept["reason"]
    return Text(f"正在退回版本 {kept['to']}：{zh}", f"It goes back to revision {kept['to']}. {en}")


def refused(server: str, error: ConsoleError) -> Text:
    """A job that could not be queued; the sentences are in the console's own language."""
    return Text(f"{server}：{error.what}{error.do}", f"{server}: {error.what} {error.do}")


def no_stack(replicas: int, why_not: Text, server: str) -> Text:
    return Text(
        f"{replicas} 个副本在等软件栈；最接近的是 {server}：{why_not.zh}",
        f"{replicas} more wait for a stack, not for room; the nearest is {server}: {why_not.en}",
    )


def no_room(replicas: int, why_not: Text | None, server: str) -> Text:
    if why_not is None:
        return Text("没有服务器可以放下一个副本", "No server has room for another replica")
    return Text(
        f"没有服务器可以再放下 {replicas} 个副本；最接近的是 {server}：{why_not.zh}",
        f"No server has room for {replicas} more; the nearest is {server}: {why_not.en}",
    )
