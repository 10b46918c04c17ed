"""Payloads that servers refused, as their beats count them: noted, and alerted when there are more."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from django.utils import timezone

from console import alerts, untrusted
from console.models import Alert
from deployments.models import Server
from deployments.steps import Text

ALERT = "payload-refused"
SETTLED_AFTER = timedelta(days=1)
MOST = 2_000_000_000


class Counts(NamedTuple):
    """Since the agent's state began; a smaller number says that it began anew."""

    refused: int
    already: int
    last_refusal: str


def read(said: Mapping[str, Any]) -> Counts | None:
    """What a beat counts; None where it does not, or not in numbers."""
    refused, already = (untrusted.whole(said.get(name), MOST) for name in ("refused", "already"))
    if refused is None or already is None:
        return None
    last = said.get("last_refusal")
    return Counts(refused, already, untrusted.text(last, 200) if isinstance(last, str) else "")


def note(counts: Mapping[int, Counts]) -> list[Server]:
    """Keep what the servers (id: counts) have counted; returns those for which an alert was fired."""
    alerted, changed = [], []
    for server in Server.objects.filter(pk__in=list(counts)).defer("facts"):
        found = counts[server.pk]
        if found == (server.refused, server.already, server.last_refusal):
            continue
        if found.refused > server.refused:
            _alert(server, found, found.refused - server.refused)
            alerted.append(server)
        server.refused, server.already, server.last_refusal = found
        changed.append(server)
    Server.objects.bulk_update(changed, ["refused", "already", "last_refusal"], batch_size=200)
    return alerted


def _alert(server: Server, found: Counts, n: int) -> None:
    alerts.fire(
        ALERT,
        f"server:{server.pk}",
        what=Text(
            f"{server.name} 拒绝了 {n} 个不是由控制台签发的作业载荷，最近一个的原因：{found.last_refusal or '—'}",
            f"{server.name} refused {n} payloads that are not as the console signs them, the last because: "
            f"{found.last_refusal or '—'}",
        ),
        do=Text(
            "它什么也没有执行。查清谁能写入这台服务器的队列，然后更换它的密钥；若只是过期或未知的作业种类，升级代理并重试作业即可。",
            "It ran none of them. Find out who can write into this server's queue, then change its keys; where one was "
            "merely too old or of an unknown kind, upgrade the agent and retry the job.",
        ),
        severity="critical",
        link=f"/servers/{server.name}/",
    )


def settle() -> int:
    """Alerts with no further refusal for a day end; how many."""
    old = Alert.objects.filter(name=ALERT, ended_at=None, last_at__lt=timezone.now() - SETTLED_AFTER)
    return sum(alerts.resolve(ALERT, subject) for subject in old.values_list("subject", flat=True))
