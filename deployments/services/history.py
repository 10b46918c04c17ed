"""The history of each server: who changed what, or what changed by itself.

A change is written in the transaction of what it tells of. Values are as short as a person reads them.
"""

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.utils.translation import gettext, gettext_noop

from console.models import User
from deployments.models import Server, ServerChange

MOST_VALUE = 6000  # characters of one value as JSON; notes have up to 4000
PAGE = 50

# What is told of, and its name in the reader's language.
FIELDS = {
    "server": gettext_noop("Server"),
    "name": gettext_noop("Name"),
    "display_name": gettext_noop("Display name"),
    "site": gettext_noop("Site"),
    "rack": gettext_noop("Rack"),
    "labels": gettext_noop("Labels"),
    "notes": gettext_noop("Notes"),
    "address_roles": gettext_noop("Roles of addresses"),
    "maintenance": gettext_noop("Maintenance"),
    "queue": gettext_noop("Queue"),
    "drain": gettext_noop("Drain"),
    "cordon": gettext_noop("Cordon"),
    "hold": gettext_noop("NPU hold"),
    "quarantine": gettext_noop("Quarantine"),
    "credentials": gettext_noop("Credentials"),
    "agent_removed": gettext_noop("Agent on the server"),
    "hostname": gettext_noop("Host name"),
    "addresses": gettext_noop("Addresses"),
    "os": gettext_noop("Operating system"),
    "kernel": gettext_noop("Kernel"),
    "glibc": gettext_noop("glibc"),
    "cpu_model": gettext_noop("CPU"),
    "cpus": gettext_noop("CPU cores"),
    "mem_total_mb": gettext_noop("Main memory MB"),
    "driver": gettext_noop("Driver"),
    "firmware": gettext_noop("Firmware"),
    "stack_current": gettext_noop("Stack in use"),
    "cann": gettext_noop("CANN"),
    "nnal": gettext_noop("NNAL"),
    "agent": gettext_noop("Agent"),
    "boot_id": gettext_noop("Boot"),
    "pci": gettext_noop("NPU cards on the PCI bus"),
}
# States that are words of ours; what an operator typed is shown as it is.
WORDS = {
    "on": gettext_noop("on"),
    "off": gettext_noop("off"),
    "paused": gettext_noop("paused"),
    "running": gettext_noop("running"),
    "draining": gettext_noop("draining"),
    "drained": gettext_noop("drained"),
    "joined": gettext_noop("joined"),
    "left": gettext_noop("left"),
    "rejoined": gettext_noop("rejoined"),
    "leaving": gettext_noop("leaving"),
    "decommissioned": gettext_noop("decommissioned"),
    "made": gettext_noop("made"),
    "issued": gettext_noop("issued"),
    "rotated": gettext_noop("rotated"),
    "revoked": gettext_noop("revoked"),
    "removed": gettext_noop("removed"),
    "two hosts": gettext_noop("two hosts with one identity"),
}
STATES = ("server", "maintenance", "queue", "drain", "quarantine", "credentials", "agent_removed")


def new_set() -> str:
    """A name for changes that are made, and taken back, together."""
    return secrets.token_hex(8)


def change(
    server: Server, field: str, before: Any, after: Any, *, by: User | None = None, reason: str = "", ticket: str = "",
    change_set: str = "",
) -> ServerChange:  # fmt: skip
    """The row of one change, not yet written."""
    return ServerChange(
        server=server,
        by=by,
        by_name=by.username if by else "",
        field=field,
        before=_short(before),
        after=_short(after),
        reason=reason.strip()[:200],
        ticket=ticket.strip()[:100],
        change_set=change_set or new_set(),
    )


def record(server: Server, field: str, before: Any, after: Any, **more: Any) -> ServerChange:
    """Write one change."""
    made = change(server, field, before, after, **more)
    made.save()
    return made


def has_left(server: Server) -> bool:
    """True where the last that became of it is that its credentials ended; a new command brings new ones."""
    last = ServerChange.objects.filter(server=server, field__in=("server", "credentials")).order_by("-pk").first()
    return last is not None and last.field == "credentials" and last.after == "revoked"


def _short(value: Any) -> Any:
    """The value, or as much of it as a row of history holds; only what is whole can be taken back."""
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= MOST_VALUE else text[:MOST_VALUE] + "…"


def differences(before: Mapping[str, Any], after: Mapping[str, Any], names: Iterable[str]) -> dict[str, list[Any]]:
    """{name: [before, after]} of what differs."""
    return {name: [before.get(name), after.get(name)] for name in names if before.get(name) != after.get(name)}


def page(server: Server, before: int | None = None, limit: int = PAGE) -> tuple[list[ServerChange], int | None]:
    """(changes, newest first; the id below which the next page begins, or None)."""
    rows = ServerChange.objects.filter(server=server)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(rows[: limit + 1])
    return found[:limit], found[limit - 1].pk if len(found) > limit else None


def title(field: str) -> str:
    return gettext(FIELDS[field]) if field in FIELDS else field


def words(field: str, value: Any) -> str:
    """A value for a reader; "—" for none."""
    if value in (None, "", {}, []):
        return "—"
    if field in STATES and isinstance(value, str):
        return _state(value)
    if field == "cordon" and isinstance(value, Mapping):  # its reason stands beside it
        return ", ".join(value)
    if isinstance(value, Mapping):
        return ", ".join(
            str(name) if item in (None, "", {}, []) else f"{name}={_plain(item)}"
            for name, item in sorted(value.items())
        )
    return _plain(value)


def _plain(value: Any) -> str:
    """What a fact holds, without the marks of the language it was read by; "—" for what is not known."""
    if value in (None, "", {}, []):
        return "—"
    if isinstance(value, Mapping):
        return " ".join(_plain(item) for item in value.values() if item not in (None, ""))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_plain, value))
    return str(value)


def _state(value: str) -> str:
    return gettext(WORDS[value]) if value in WORDS else value


def as_json(row: ServerChange) -> dict[str, Any]:
    """One change as REST gives it. `by` is None where it changed by itself."""
    return {
        "id": row.pk,
        "at": row.at.isoformat(),
        "by": row.by_name or None,
        "field": row.field,
        "before": row.before,
        "after": row.after,
        "reason": row.reason,
        "ticket": row.ticket,
        "change_set": row.change_set,
        "undone_at": row.undone_at.isoformat() if row.undone_at else None,
    }
