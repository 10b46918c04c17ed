"""Engines that the console did not start: found on servers, shown, watched, never touched.

An agent tells all it finds every 30 s. Rows are written only where that is not what it told before.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from console import alerts, audit, untrusted
from console.errors import Conflict, Invalid, NotFound
from console.models import User
from deployments.models import ExternalEngine, Server
from deployments.row_locks import hold_servers, lock_server
from deployments.services import jobs, ports

KINDS = ("vllm", "mindie")
HEALTHS = ("ok", "failed", "")
MOST, MOST_NPUS = 64, 128
KEPT_GONE = 100  # of one server: an engine that starts anew every minute must not fill the table
ALERT = "external-engine"
TEXTS = {"key": 120, "user": 64, "container": 100, "image": 300, "model": 1000}
TOLD = ("kind", "pid", "user", "container", "image", "model", "port", "npus", "health")


class Found(NamedTuple):
    """One engine as a server tells of it, made such that the row can hold it."""

    key: str
    kind: str
    pid: int | None
    user: str
    container: str
    image: str
    model: str
    port: int | None
    npus: tuple[str, ...]
    health: str


Listing = tuple[Found, ...]


def clean(told: Any) -> Listing | None:
    """What a sample says under `external`, by key; None where it says nothing. Hostile, so cut and checked."""
    if not isinstance(told, list):
        return None
    found = {one.key: one for item in told[:MOST] if isinstance(item, dict) and (one := _one(item))}
    return tuple(found[key] for key in sorted(found))


def _one(item: Mapping[str, Any]) -> Found | None:
    texts = {name: untrusted.text(item[name], most) if isinstance(item.get(name), str) else ""
             for name, most in TEXTS.items()}  # fmt: skip
    kind, health, npus = item.get("kind"), item.get("health"), item.get("npus")
    if not texts["key"] or kind not in KINDS:
        return None
    names = (
        [untrusted.text(one, 32) for one in npus[:MOST_NPUS] if isinstance(one, str)] if isinstance(npus, list) else []
    )
    return Found(
        pid=untrusted.whole(item.get("pid"), 2**31 - 1), port=untrusted.whole(item.get("port"), 65535) or None,
        kind=str(kind), npus=tuple(names), health=health if health in HEALTHS else "", **texts,
    )  # fmt: skip


def save(news: Mapping[int, Listing]) -> None:
    """{server id: all that is there now}: rows follow, and alerts of those that are watched. Within a transaction of
    ingest, which holds the servers."""
    if not news:
        return
    with transaction.atomic():
        hold_servers(news)
        rows: dict[int, dict[str, ExternalEngine]] = {}
        for row in ExternalEngine.objects.filter(server__in=list(news)).select_related("server"):
            rows.setdefault(row.server_id, {})[row.key] = row
        for server, listing in news.items():
            _follow(server, rows.get(server, {}), listing)


def _follow(server: int, rows: Mapping[str, ExternalEngine], listing: Listing) -> None:
    now = timezone.now()
    for found in listing:
        row = rows.get(found.key) or ExternalEngine(server_id=server, key=found.key, first_at=now)
        values = {**found._asdict(), "npus": list(found.npus)}
        if row.pk is None or row.gone_at is not None or any(getattr(row, name) != values[name] for name in TOLD):
            for name in TOLD:
                setattr(row, name, values[name])
            row.seen_at, row.gone_at = now, None
            row.save()
            _judge(row)
    there = {found.key for found in listing}
    for key, row in rows.items():
        if key not in there and row.gone_at is None:
            row.gone_at = now
            row.save(update_fields=["gone_at"])
            _judge(row)
    _prune(server)


def _prune(server: int) -> None:
    """Of those that are gone the newest stay, and those that somebody named or watches."""
    gone = ExternalEngine.objects.filter(server=server, alias="", watched=False).exclude(gone_at=None)
    old = list(gone.order_by("-gone_at").values_list("pk", flat=True)[KEPT_GONE : KEPT_GONE + 500])
    if old:
        ExternalEngine.objects.filter(pk__in=old).delete()


def _judge(row: ExternalEngine) -> None:
    """Fire or end the alert of one engine, as it is and as it is watched now."""
    subject = f"engine:{row.pk}"
    if not row.watched or (row.gone_at is None and row.health != "failed"):
        alerts.resolve(ALERT, subject)
        return
    name, server = title(row), row.server.name
    if row.gone_at is not None:
        what = (
            f"{server} 上被关注的引擎 {name} 不见了。",
            f"The engine {name} on {server}, which is watched, is gone.",
        )
    else:
        what = (
            f"{server} 上被关注的引擎 {name} 不健康。",
            f"The engine {name} on {server}, which is watched, is not well.",
        )
    do = (
        "控制台不会改动它：请联系其所有者，或在“外部引擎”页面取消关注。",
        "The console does not touch it: ask its owner, or stop watching it on the page of engines.",
    )
    alerts.fire(ALERT, subject, what=what, do=do, link=reverse("deployments:engine-list"))


def title(row: ExternalEngine) -> str:
    """What people call it, else its model, container or kind."""
    return row.alias or row.model.rstrip("/").rpartition("/")[2][:100] or row.container or row.kind


# ---------- what people do ----------


def change(row: ExternalEngine, *, by: User, alias: str | None = None, watched: bool | None = None) -> ExternalEngine:
    """Call it something, or watch it. The engine itself is never touched. Raises ConsoleError."""
    jobs.check_may_operate(by)
    if alias is not None and (len(alias.strip()) > 100 or not alias.strip().isprintable()):
        raise Invalid(
            _("The name is longer than 100 characters, or cannot be read."),
            _("Choose a shorter one."),
            code="bad_alias",
        )
    with transaction.atomic():
        lock_server(row.server_id)
        row = (
            ExternalEngine.objects.select_for_update(no_key=True, of=("self",)).select_related("server").get(pk=row.pk)
        )
        before = (row.alias, row.watched)
        row.alias = row.alias if alias is None else alias.strip()
        row.watched = row.watched if watched is None else watched
        if (row.alias, row.watched) != before:
            row.save(update_fields=["alias", "watched"])
            audit.record(by, "engine.changed", row, server=row.server.name, alias=row.alias, watched=row.watched)
            _judge(row)
    return row


def rows(*, gone: bool = False) -> QuerySet[ExternalEngine]:
    found = (
        ExternalEngine.objects.filter(server__decommissioned_at=None).select_related("server").defer("server__facts")
    )
    found = found.order_by("server__name", "key")
    return found.exclude(gone_at=None) if gone else found.filter(gone_at=None)


def find(pk: int) -> ExternalEngine:
    """Raises NotFound."""
    row = ExternalEngine.objects.select_related("server").filter(pk=pk).first()
    if row is None:
        raise NotFound(
            _("There is no engine %(id)s.") % {"id": pk}, _("Choose one of the page of engines."), code="no_engine"
        )
    return row


class Target(NamedTuple):
    """Where a gateway reaches an engine."""

    engine: ExternalEngine
    address: str
    port: int


def attachable(servers: Iterable[Server] | None = None) -> list[Target]:
    """Those that a gateway may send requests to: there, healthy, and with an address that is known."""
    found = rows().filter(health="ok").exclude(port=None)
    if servers is not None:
        found = found.filter(server__in=list(servers))
    targets = []
    for row in found:
        try:
            targets.append(Target(row, ports.address_of(row.server), row.port or 0))
        except Conflict:  # nobody knows its address
            continue
    return targets


def as_json(row: ExternalEngine, metrics: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`metrics` are those of external_live.read; null where the engine does not tell."""
    told = {name: getattr(row, name) for name in TOLD}
    return {
        "id": row.pk,
        "server": row.server.name,
        "simulated": row.server.simulated,
        **{name: value if value != "" else None for name, value in told.items()},
        "metrics": metrics,
        "alias": row.alias,
        "watched": row.watched,
        "first_at": row.first_at.isoformat(),
        "seen_at": row.seen_at.isoformat(),
        "gone_at": row.gone_at.isoformat() if row.gone_at else None,
    }
