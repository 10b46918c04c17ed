"""What servers tell of gateways, in their samples: how they are, and what each key has used. All of it is untrusted."""

import logging
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db.models import F
from django.db.models.functions import Least
from django.utils import timezone

from console import untrusted
from deployments.models import Gateway, GatewayKey, Job, KeyUsage, Order, OrderState, Server
from deployments.row_locks import lock_gateway
from deployments.services import gateways, ports

log = logging.getLogger(__name__)

STATES = ("starting", "ready", "degraded", "failed", "stopped")
INSTANCE = re.compile(r"[0-9a-f]{16}")
MOST_ROWS, MOST_ENGINES, MOST_INSTANCES = 2000, 64, 8
MOST_COUNT = 10**12  # of one key and day: what a server makes up is kept, and summed, all the same
MOST_ID = 2**53
AGAIN_S = 60  # whoever answers and does not take it must not get an order with every sample
SHUT_AGAIN_S = 600
KEPT_DAYS = 70
WRITE_S = 5.0
Counts = list[int]


def heard(server_id: int, told: Any, received: float) -> None:
    """Take what one server says of its gateways; a row is written where it differs, and every few seconds."""
    rows = [one for one in told[:50] if isinstance(one, dict)] if isinstance(told, list) else []
    by_number = {one["gateway"]: one for one in rows if isinstance(one.get("gateway"), int)}
    mine = Gateway.objects.filter(server=server_id, pk__in=[n for n in by_number if 0 < n < MOST_ID])
    for gateway in mine.order_by("pk"):
        said = by_number[gateway.pk]
        at = datetime.fromtimestamp(received, UTC)
        if _is_news(gateway, said, at):
            _take(gateway.pk, said, at)
    _shut_strays(server_id, by_number)


def _shut_strays(server_id: int, by_number: Mapping[int, Mapping[str, Any]]) -> None:
    """Those that run on although they were moved to another server: the job that ends them failed."""
    running = [n for n, said in by_number.items() if 0 < n < MOST_ID and said.get("state") != "stopped"]
    if not running:
        return
    for gateway in Gateway.objects.filter(pk__in=running).exclude(server=server_id):
        been = Job.objects.filter(server=server_id, kind="gateway", params__gateway=gateway.pk).exists()
        lately = timezone.now() - timedelta(seconds=SHUT_AGAIN_S)
        told = Order.objects.filter(server=server_id, do=gateways.DO, args__gateway=gateway.pk, created_at__gt=lately)
        if been and not told.exists():
            log.warning("gateway %s still runs on server %s: it lets nobody in any more", gateway.pk, server_id)
            gateways.shut(gateway, Server.objects.get(pk=server_id))


def _is_news(gateway: Gateway, said: Mapping[str, Any], at: datetime) -> bool:
    if gateway.heard_at is None or at - gateway.heard_at >= timedelta(seconds=WRITE_S):
        return True
    return said.get("state") != gateway.state or said.get("version") != gateway.applied


def _take(pk: int, said: Mapping[str, Any], at: datetime) -> None:
    gateway = lock_gateway(pk)
    version = said.get("version")
    state = next((one for one in STATES if one == said.get("state")), "failed")
    gateway.applied = version if isinstance(version, int) and 0 <= version <= gateway.wished else 0
    gateway.state = "failed" if said.get("kept") is False and state != "stopped" else state
    gateway.reason = _pair(said.get("reason"))
    gateway.heard_at = at
    again = gateway.enabled and gateway.applied < gateway.wished and _is_to_be_told(gateway, at)
    gateway.told = {
        "again": [gateway.wished, int(at.timestamp())] if again else gateway.told.get("again"),
        "engines": _engines(said.get("engines")),
        "restarts": untrusted.whole(said.get("restarts"), 10**6),
        "seen": count(gateway, said, at),
    }
    gateway.save(update_fields=["applied", "state", "reason", "heard_at", "told"])
    if not gateway.enabled and state == "stopped":
        ports.release(gateway=gateway)
        Gateway.objects.filter(pk=pk).update(port=0, router_port=0)
    elif again:
        gateways.tell(gateway)


def _is_to_be_told(gateway: Gateway, at: datetime) -> bool:
    """Whether it has not heard of it, or has heard and not taken it, and not just now."""
    version, before = gateway.told.get("again") or (0, 0)
    lately = version == gateway.wished and abs(at.timestamp() - before) < AGAIN_S
    return not lately and not _is_told(gateway)


def _is_told(gateway: Gateway) -> bool:
    """Whether it was sent already what it has not taken yet; a job brings it as well."""
    if gateway.job is not None and gateway.job.ended_at is None:
        return True
    rows = Order.objects.filter(server=gateway.server_id, do=gateways.DO, state=OrderState.SENT)
    return rows.filter(args__gateway=gateway.pk, args__version=gateway.wished).exists()


def _pair(value: Any) -> list[str] | None:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value):
        return [untrusted.text(one, 500) for one in value]
    return None


def _engines(value: Any) -> list[dict[str, Any]]:
    rows = [one for one in value[:MOST_ENGINES] if isinstance(one, dict)] if isinstance(value, list) else []
    return [
        {
            "url": untrusted.text(str(one.get("url")), 300),
            "healthy": one.get("healthy") is True,
            "load": untrusted.whole(one.get("load"), 10**6),
        }
        for one in rows
    ]


def count(gateway: Gateway, said: Mapping[str, Any], at: datetime) -> dict[str, dict[str, Counts]]:
    """Add what is more than was seen before; returns what has been seen by now, {instance: {"day key": counts}}.

    A server tells totals that only grow, again and again: whatever gets lost on the way, each request counts once.
    """
    seen: dict[str, dict[str, Counts]] = dict(gateway.told.get("seen", {}))
    instance = said.get("instance")
    if not isinstance(instance, str) or not INSTANCE.fullmatch(instance):
        return seen
    first, last = at.date() - timedelta(days=KEPT_DAYS), at.date() + timedelta(days=2)
    mine = dict(seen.pop(instance, {}))
    used: set[int] = set()
    known: set[int] | None = None
    for day, key, counts in _rows(said.get("usage")):
        before = mine.get(f"{day} {key}", [0, 0, 0, 0])
        if counts == before or not first <= day <= last or any(a < b for a, b in zip(counts, before, strict=True)):
            continue
        known = known if known is not None else set(GatewayKey.objects.values_list("pk", flat=True))
        if key in known:
            _add(gateway, day, key, [a - b for a, b in zip(counts, before, strict=True)])
            mine[f"{day} {key}"] = counts
            used.add(key)
    GatewayKey.objects.filter(pk__in=used).update(used_at=at)
    kept = {name: row for name, row in mine.items() if name[:10] >= first.isoformat()}
    newest = dict(list(seen.items())[-(MOST_INSTANCES - 1) :])
    return {**newest, instance: kept}


def _rows(value: Any) -> list[tuple[date, int, Counts]]:
    made = []
    for row in value[:MOST_ROWS] if isinstance(value, list) else []:
        if not (isinstance(row, list) and len(row) == 6 and isinstance(row[0], str)):
            continue
        numbers = row[1:]
        if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MOST_COUNT for n in numbers):
            continue
        try:
            made.append((date.fromisoformat(row[0]), numbers[0], numbers[1:]))
        except ValueError:
            continue
    return made


def _add(gateway: Gateway, day: date, key: int, more: Counts) -> None:
    row, _made = KeyUsage.objects.get_or_create(key_id=key, deployment_id=gateway.deployment_id, day=day)
    names = ("requests", "failed", "prompt_tokens", "completion_tokens")
    sums = {name: Least(F(name) + n, MOST_COUNT) for name, n in zip(names, more, strict=True)}
    KeyUsage.objects.filter(pk=row.pk).update(**sums)


def is_old(gateway: Gateway) -> bool:
    """Whether what is known of it may not be so any more."""
    return gateway.heard_at is None or timezone.now() - gateway.heard_at > gateways.AGE
