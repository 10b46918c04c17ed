"""What a reader asked of the fleet page, read from the address: filter, grouping, order. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from django.utils.translation import gettext

from deployments.services.selection import has_words, natural
from monitoring.services.fleet_page import CODE, FAULTY, METRIC_AT, OCC, PageServer
from monitoring.services.live_state import HEARD

CHOICES = {
    "metric": tuple(METRIC_AT),
    "group": ("rack", "site", "family", "none"),
    "sort": ("name", "worst"),
    "view": ("squares", "table"),
    "fleet": ("", "real", "simulated"),
    "show": ("", "live", "silent", "offline", "never", "maintenance", "faulty", *CODE),
}
MAX_FIND = 100
TEXTS = ("name", "display", "family", "rack", "site", "labels", "holder")  # that a word of the filter may stand in


@dataclass(frozen=True)
class Asked:
    """One view of the fleet. `show` keeps servers of that state, or with an NPU of that occupancy."""

    metric: str = "aicore_pct"
    group: str = "rack"
    sort: str = "name"
    view: str = "squares"
    fleet: str = ""
    show: str = ""
    find: str = ""

    def address(self, **changes: str) -> str:
        """The query string of this view with `changes`; defaults are left out. Begins with "?" ."""
        plain = asdict(Asked())
        wanted = {name: value for name, value in {**asdict(self), **changes}.items() if value != plain[name]}
        return "?" + urlencode(wanted)


def read(query: Mapping[str, str]) -> tuple[Asked, list[str]]:
    """What the address asks for, and a sentence for each value it does not know (its default is taken)."""
    given, problems = {"find": query.get("find", "").strip()[:MAX_FIND]}, []
    for name, choices in CHOICES.items():
        value = query.get(name)
        if value is None:
            continue
        if value in choices:
            given[name] = value
        else:
            words = ", ".join(choice for choice in choices if choice)
            problems.append(
                gettext(
                    "The address asks for %(name)s “%(value)s”, which this page does not know. It takes: %(words)s."
                )
                % {"name": name, "value": value[:40], "words": words}
            )
    return Asked(**given), problems


def matches(server: PageServer, asked: Asked) -> bool:
    if asked.fleet and server["sim"] != (asked.fleet == "simulated"):
        return False
    if asked.show and not _shows(server, asked.show):
        return False
    if not asked.find:
        return True
    text = " ".join(server[name] for name in TEXTS)
    return has_words(text, asked.find, rack=server["rack"], site=server["site"], labels=server["labels"])


def _shows(server: PageServer, show: str) -> bool:
    if show == "faulty":
        return any(npu[FAULTY] for npu in server["npus"])
    if show in CODE:
        return any(npu[OCC] == CODE[show] for npu in server["npus"])
    return bool(server["state"] == show)


@dataclass(frozen=True)
class Group:
    """Servers under one heading; `name` is '' where there is none. `free` counts NPUs that are free and sound."""

    kind: str
    name: str
    simulated: bool
    servers: list[PageServer]

    @property
    def title(self) -> str:
        if self.kind == "rack":
            return gettext("Rack %(name)s") % {"name": self.name} if self.name else gettext("no rack")
        if self.kind == "site":
            return gettext("Site %(name)s") % {"name": self.name} if self.name else gettext("no site")
        if self.kind == "family":
            return self.name or gettext("no NPU")
        return gettext("Simulated servers") if self.simulated else gettext("Servers")

    @property
    def tally(self) -> str:
        values = {"servers": len(self.servers), "free": self.free, "npus": self.npus}
        return gettext("servers %(servers)s · NPUs free %(free)s of %(npus)s") % values

    @property
    def npus(self) -> int:
        return sum(len(server["npus"]) for server in self.servers)

    @property
    def free(self) -> int:
        return sum(npu[OCC] == CODE["free"] and not npu[FAULTY] for server in self.servers for npu in server["npus"])


def arrange(servers: Iterable[PageServer], asked: Asked) -> list[Group]:
    """The servers in groups, real ones before simulated ones, as `asked` orders them. All of them: see `matches`."""
    groups: dict[tuple[bool, str], list[PageServer]] = {}
    for server in servers:
        name = "" if asked.group == "none" else server[asked.group]
        groups.setdefault((server["sim"], name), []).append(server)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], natural(item[0][1])))
    return [Group(asked.group, name, sim, order(members, asked)) for (sim, name), members in ordered]


def order(servers: Iterable[PageServer], asked: Asked) -> list[PageServer]:
    by_name = sorted(servers, key=lambda server: natural(server["name"]))
    return sorted(by_name, key=lambda server: worst(server, asked.metric)) if asked.sort == "worst" else by_name


def worst(server: PageServer, metric: str) -> tuple[int, int]:
    """A key that puts first what needs a person: faults, silence, unreadable; then load, in tens, so that noise
    moves nothing."""
    faults = sum(npu[FAULTY] for npu in server["npus"])
    rank = 0 if faults else 1 if server["state"] not in HEARD else 2 if server["error"] else 3
    at = METRIC_AT[metric]
    amounts = [npu[at] for npu in server["npus"] if npu[at] is not None] if server["state"] in HEARD else []
    mean = sum(amounts) / len(amounts) if amounts else 0
    return rank, -int(mean / 10)


CSV_SERVER = ("site", "rack", "labels", "family")
CSV_NPU = (
    "npu", "chip", "bus_id", "name", "health", "occ", "aicore", "hbm_used_mb", "hbm_total_mb", "temp_c", "power_w",
)  # fmt: skip
CSV_HEAD = (
    "server", "state", "simulated", "site", "rack", "labels", "family", "npu", "chip", "bus_id", "name", "health",
    "occupancy", "aicore_pct", "hbm_used_mb", "hbm_total_mb", "temp_c", "power_w", "age_s",
)  # fmt: skip


def csv_rows(servers: Sequence[PageServer], nows: Mapping[int, Mapping[str, Any]]) -> Iterable[list[Any]]:
    """One row per NPU, one for a server without; None is unknown."""
    for server in servers:
        head = [server["name"], server["state"], int(server["sim"]), *(server[name] for name in CSV_SERVER)]
        npus = nows[server["id"]]["npus"] or [{}]
        for npu in npus:
            yield [*head, *(npu.get(name) for name in CSV_NPU), server["age"]]
