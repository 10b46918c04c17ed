"""Which servers a batch hits, and in which waves. Pure but for the one query of `find`."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from console.errors import Invalid
from deployments.models import Server
from deployments.services import inventory

MOST_SERVERS = 2000
FLEETS = ("real", "simulated", "both")


@dataclass(frozen=True)
class Asked:
    """A filter over servers; what is empty excludes nothing. `find` are words as those of the fleet page's filter.

    `fleet` is real, simulated or both: real and simulated servers come together only where that is said.
    """

    names: list[str] = field(default_factory=list)
    racks: list[str] = field(default_factory=list)
    families: list[str] = field(default_factory=list)
    find: str = ""
    fleet: str = "real"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def find(asked: Asked) -> tuple[list[Server], list[str]]:
    """(servers that match by name, sentences about names that do not). Raises Invalid where nothing at all is asked
    for a fleet that is none, or too many match."""
    if asked.fleet not in FLEETS:
        raise Invalid(
            _("“%(fleet)s” is no fleet.") % {"fleet": asked.fleet[:40]},
            _("Use one of: %(words)s.") % {"words": ", ".join(FLEETS)},
            code="unknown_fleet",
        )
    rows = Server.objects.present().order_by("name")
    if asked.fleet != "both":
        rows = rows.filter(simulated=asked.fleet == "simulated")
    if asked.names:
        rows = rows.filter(name__in=asked.names)
    if asked.racks:
        rows = rows.filter(rack__in=asked.racks)
    if asked.families:
        rows = rows.filter(family__in=asked.families)
    servers = [server for server in rows.defer("facts", "notes", "key", "redis_password") if _has(server, asked.find)]
    servers.sort(key=lambda server: natural(server.name))
    if len(servers) > MOST_SERVERS:
        raise Invalid(
            _("%(n)s servers match; one batch takes %(most)s.") % {"n": len(servers), "most": MOST_SERVERS},
            _("Narrow the selection, and make several batches."),
            code="too_many",
        )
    return servers, _missing(asked, servers)


def natural(text: str) -> list[Any]:
    """A key by which kp-2 stands before kp-10."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part.lower()) for part in re.split(r"(\d+)", text) if part
    ]


def _has(server: Server, words: str) -> bool:
    labels = inventory.label_words(server.labels)
    text = f"{server.name} {server.display_name} {server.family} {server.rack} {server.site} {labels}"
    return has_words(text, words, rack=server.rack, site=server.site, labels=labels)


def has_words(text: str, words: str, *, rack: str, site: str, labels: str) -> bool:
    """Whether a server with this text has every word.

    "rack:a1", "site:bj" and "label:env=prod" or "label:env" ask for just that; any other word may stand anywhere.
    static/js/fleet/query.js does the same.
    """
    known = {"rack": rack.lower(), "site": site.lower()}
    owned = [label.lower() for label in labels.split()]
    plain = text.lower()
    for word in words.lower().split():
        name, colon, value = word.partition(":")
        if colon and name in known:
            fits = known[name].replace(" ", "-") == value.replace(" ", "-")
        elif colon and name == "label":
            fits = any(label == value or label.startswith(f"{value}=") for label in owned)
        else:
            fits = word in plain
        if not fits:
            return False
    return True


def _missing(asked: Asked, servers: Sequence[Server]) -> list[str]:
    """A name that somebody typed and that hits nothing is said, never passed over."""
    hit = {server.name for server in servers}
    left = [name for name in asked.names if name not in hit]
    if not left:
        return []
    known = set(Server.objects.filter(name__in=left).values_list("name", flat=True))
    out = [name for name in left if name in known]
    unknown = [name for name in left if name not in known]
    said = []
    if unknown:
        said.append(_("No server is called: %(names)s.") % {"names": _listed(unknown)})
    if out:
        said.append(_("Left out by the other filters: %(names)s.") % {"names": _listed(out)})
    return said


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - 10
    return ", ".join(name[:63] for name in names[:10]) + (f" … (+{rest})" if rest > 0 else "")


def check_numbers(*limits: tuple[str, int, int, int]) -> None:
    """Each is (name, value, least, most) of what a batch or campaign asks for. Raises Invalid naming the first."""
    for name, value, least, most in limits:
        if not least <= value <= most:
            raise Invalid(
                _("%(name)s is %(value)s.") % {"name": name, "value": value},
                _("Give a whole number from %(least)s to %(most)s.") % {"least": least, "most": most},
                code="bad_plan",
            )


def waves(servers: Sequence[Server], *, canary: int, size: int, spread: bool) -> dict[int, int]:
    """{server id: number of its wave}; 0 is the canary, which is there only where `canary` > 0.

    With `spread` no two servers of one rack share a wave; a server without a rack stands in one of its own. Servers
    that are silent go last, so that the canary is one that can answer.
    """
    left = sorted(servers, key=lambda server: server.is_offline)
    placed: dict[int, int] = {}
    number = 0 if canary else 1
    while left:
        chosen = _wave(left, canary if number == 0 else size, spread)
        placed.update({server.pk: number for server in chosen})
        left = [server for server in left if server.pk not in placed]
        number += 1
    return placed


def _wave(left: Sequence[Server], size: int, spread: bool) -> list[Server]:
    if not spread:
        return list(left[:size])
    # Full racks first: they are what makes the number of waves.
    members = Counter(server.rack for server in left)
    order = sorted(left, key=lambda server: (server.is_offline, -members[server.rack] if server.rack else 0))
    chosen: list[Server] = []
    racks: set[tuple[bool, str]] = set()
    for server in order:
        rack = (server.simulated, server.rack)
        if len(chosen) < size and (not server.rack or rack not in racks):
            chosen.append(server)
            racks.add(rack)
    return chosen


def grouped(servers: Sequence[Server], placed: Mapping[int, int]) -> list[tuple[int, list[Server]]]:
    """[(wave, its servers by name)] in order."""
    groups: dict[int, list[Server]] = {}
    for server in servers:
        groups.setdefault(placed[server.pk], []).append(server)
    return sorted(groups.items())
