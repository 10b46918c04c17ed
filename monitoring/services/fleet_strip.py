"""The strip of counts above the fleet: each count is a filter. Real and simulated servers are never added up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext

from monitoring.services import fleet_page
from monitoring.services.fleet_page import PageServer
from monitoring.services.fleet_query import Asked
from monitoring.services.page_texts import OCCUPANCIES, STATES

ALWAYS = ("live", "free", "ours", "foreign")


@dataclass(frozen=True)
class Count:
    """One number of the strip. `pressed` means that the page is filtered by it; choosing it again takes that back."""

    show: str
    label: str
    n: int
    css: str
    icon: str
    address: str
    pressed: bool

    @property
    def hidden(self) -> bool:
        return not (self.n or self.pressed or self.show in ALWAYS)


@dataclass(frozen=True)
class Strip:
    """The counts of the real or of the simulated servers. `jobs` is {running, queued}."""

    fleet: str
    servers: Count
    states: list[Count]
    npus: int
    occupancies: list[Count]
    jobs: Mapping[str, int]


def strips(servers: Sequence[PageServer], asked: Asked, jobs: Mapping[bool, Mapping[str, int]]) -> list[Strip]:
    """The real servers' strip, and the simulated ones' where there are any. `jobs` is keyed by "simulated"."""
    simulated = [server for server in servers if server["sim"]]
    real = [server for server in servers if not server["sim"]]
    made = [_strip("real", real, asked, jobs.get(False, {}))]
    return [*made, _strip("simulated", simulated, asked, jobs.get(True, {}))] if simulated else made


def _strip(fleet: str, servers: Sequence[PageServer], asked: Asked, jobs: Mapping[str, int]) -> Strip:
    tally = fleet_page.counts(servers)

    def count(show: str, label: str, css: str, icon: str) -> Count:
        pressed = asked.fleet == fleet and asked.show == show
        target = asked.address(fleet="", show="") if pressed else asked.address(fleet=fleet, show=show)
        return Count(show, label, tally[show or "servers"], css, icon, target, pressed)

    label = gettext("servers") if fleet == "real" else gettext("simulated servers")
    return Strip(
        fleet=fleet,
        servers=count("", label, "total", ""),
        states=[count(name, str(look.word), look.css, look.icon) for name, look in STATES.items()],
        npus=tally["npus"],
        occupancies=[
            count(name, gettext(key), "critical" if name == "faulty" else "", name) for name, key in OCCUPANCIES.items()
        ],
        jobs=jobs,
    )
