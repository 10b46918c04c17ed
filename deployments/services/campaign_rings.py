"""In which ring and wave each server of a campaign stands. Pure.

Ring 0 is the canary and is there only where one is wanted. A ring is made of waves, so that not all of its servers
fetch and install at once; waves count on through all rings, as those of batches do.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from console.errors import Invalid
from deployments.models import Server
from deployments.services import selection
from deployments.steps import Text

BY = ("size", "rack", "label")
MOST_RINGS = 50
MOST_AT_ONCE = 100  # a wave is planned and queued in one transaction
MOST_SOAK_MIN = 7 * 24 * 60
CANARY = Text("试运行", "Canary")


@dataclass(frozen=True)
class Order:
    """How a campaign goes on.

    `by` size: rings of `size` servers; rack: of so many racks; label: one for each value of the label `label`, first
    those of `values` in their order. `soak_min` are the minutes that must pass well after a ring.
    """

    canary: int = 1
    by: str = "size"
    size: int = 20
    label: str = ""
    values: list[str] = field(default_factory=list)
    at_once: int = 10
    spread: bool = True
    soak_min: int = 60
    stop_after: int = 1

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> "Order":
        """As it was kept; what another version of the console wrote besides is left out."""
        return cls(**{name: kept[name] for name in (one.name for one in fields(cls)) if name in kept})

    def check(self) -> None:
        """Raises Invalid in words."""
        if self.by not in BY:
            raise Invalid(
                _("Rings are not made by “%(by)s”.") % {"by": self.by[:40]},
                _("Use one of: %(words)s.") % {"words": ", ".join(BY)},
                code="bad_plan",
            )
        selection.check_numbers(
            ("canary", self.canary, 0, 100),
            ("size", self.size, 1, selection.MOST_SERVERS),
            ("at_once", self.at_once, 1, MOST_AT_ONCE),
            ("soak_min", self.soak_min, 0, MOST_SOAK_MIN),
            ("stop_after", self.stop_after, 1, selection.MOST_SERVERS),
        )
        if self.by == "label" and not self.label:
            raise Invalid(
                _("Rings by label need the name of a label."),
                _("Name it, for example “ring”, or make rings by size or by rack."),
                code="bad_plan",
            )


class Place(NamedTuple):
    ring: int
    wave: int


@dataclass(frozen=True)
class Placed:
    """`titles` are [zh, en] by the number of the ring; `places` by the server's id."""

    titles: dict[int, Text]
    places: dict[int, Place]


def place(servers: Sequence[Server], order: Order, *, tries: Iterable[int] = ()) -> Placed:
    """Rings and waves of these servers. `tries` are ids of those that something runs on: a canary on which nothing
    runs would try nothing. Raises Invalid where there would be too many rings."""
    titles: dict[int, Text] = {}
    places: dict[int, Place] = {}
    if order.canary and servers:
        wanted = set(tries)
        candidates = [server for server in servers if server.pk in wanted] or servers
        waves = selection.waves(candidates, canary=order.canary, size=selection.MOST_SERVERS, spread=order.spread)
        titles[0] = CANARY
        places |= {pk: Place(0, 0) for pk, wave in waves.items() if wave == 0}
    rest = [server for server in servers if server.pk not in places]
    groups = _groups(rest, order)
    if len(groups) > MOST_RINGS:
        raise Invalid(
            _("This makes %(n)s rings; a campaign takes %(most)s.") % {"n": len(groups), "most": MOST_RINGS},
            _("Put more servers or racks into a ring, or choose another label."),
            code="too_many_rings",
        )
    wave = 0
    for ring, (title, members) in enumerate(groups, start=1):
        titles[ring] = title
        inside = selection.waves(members, canary=0, size=order.at_once, spread=order.spread)
        places |= {pk: Place(ring, wave + number) for pk, number in inside.items()}
        wave += max(inside.values())
    return Placed(titles, places)


def _groups(servers: Sequence[Server], order: Order) -> list[tuple[Text, list[Server]]]:
    """[(title, servers)], none of them empty."""
    if order.by == "rack":
        return _by_rack(servers, order.size)
    if order.by == "label":
        return _by_label(servers, order.label, order.values)
    parts = [list(servers[start : start + order.size]) for start in range(0, len(servers), order.size)]
    return [(Text(f"第 {n} 环", f"Ring {n}"), part) for n, part in enumerate(parts, start=1)]


def _by_rack(servers: Sequence[Server], size: int) -> list[tuple[Text, list[Server]]]:
    racks: dict[str, list[Server]] = {}
    for server in servers:
        racks.setdefault(server.rack, []).append(server)
    nowhere = racks.pop("", [])
    names = sorted(racks, key=selection.natural)
    made = []
    for start in range(0, len(names), size):
        part = names[start : start + size]
        title = ", ".join(part[:3]) + (f" … (+{len(part) - 3})" if len(part) > 3 else "")
        made.append((Text(f"机柜 {title}", f"Rack {title}"), [one for name in part for one in racks[name]]))
    return [*made, (Text("无机柜", "Without a rack"), nowhere)] if nowhere else made


def _by_label(servers: Sequence[Server], label: str, values: Sequence[str]) -> list[tuple[Text, list[Server]]]:
    found: dict[str | None, list[Server]] = {}
    for server in servers:
        labels = server.labels if isinstance(server.labels, Mapping) else {}
        found.setdefault(str(labels[label]) if label in labels else None, []).append(server)
    others = sorted((one for one in found if one is not None and one not in values), key=selection.natural)
    made = []
    for value in [*dict.fromkeys(values), *others]:
        if members := found.get(value):
            name = f"{label}={value}" if value else label
            made.append((Text(name, name), members))
    if rest := found.get(None):
        made.append((Text(f"无标签 {label}", f"Without label {label}"), rest))
    return made
