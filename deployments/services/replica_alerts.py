"""The alert of replicas that have failed: names the cause, and leads to the line of the log that tells it."""

from typing import Any

from console import alerts
from console.models import Alert
from deployments.models import Replica
from deployments.services import replica_causes

FAILED = "replica-failed"
DO = ("打开部署页面查看副本日志，改好后再启动", "Open its page and the replica's log, mend it, then start it again")
UNKNOWN = ["原因未知", "the reason is not known"]


def about(replica: Replica) -> str:
    return f"deployment:{replica.deployment_id}"


def fire(replica: Replica) -> None:
    alerts.fire(FAILED, about(replica), **_words(replica))


def renew(replica: Replica) -> None:
    """Its log was read after the alert was opened: the open one says now what is known. It counts up nothing."""
    row = Replica.objects.select_related("deployment", "server").filter(pk=replica.pk).first()
    found = Alert.objects.filter(name=FAILED, subject=about(row), ended_at=None).first() if row else None
    # Several replicas of a deployment may have failed, and the alert is of one.
    if row is not None and found is not None and str(found.what[1]).startswith(_name(row)[1]):
        alerts.renew(found, **_words(row))


def _name(replica: Replica) -> tuple[str, str]:
    name, server = replica.deployment.name, replica.server.name
    return f"部署 {name} 的副本 {replica.n}（{server}）失败", f"Replica {replica.n} of {name} on {server} failed"


def _page(replica: Replica) -> str:
    return f"/deployments/{replica.deployment.name}/"


def _words(replica: Replica) -> dict[str, Any]:
    cause = replica_causes.of(replica)
    zh, en = cause.what if cause else replica.reason or UNKNOWN
    name = _name(replica)
    return {
        "what": (f"{name[0]}：{zh}", f"{name[1]}: {en}"),
        "do": (cause.do if cause and cause.do else DO),
        "link": cause.link if cause else _page(replica),
    }
