"""What a change of a deployment would hit: exactly which replicas with their NPUs, and whether service stops meanwhile.

The services that change it say which (`plan` of each); here that becomes what a page shows before it is confirmed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.models import SERVING
from deployments.services import deployments, engine_figures, revisions, scaling
from deployments.services.deployment_page import Line, Page


@dataclass(frozen=True)
class Hit:
    """`lines` end, or with `again` start anew one after the other. `starts`: (server, names of NPUs) of new ones,
    `lacking` is how many find no room, `why_not` why. `gap`: nobody answers for about `away_s` seconds (None: no start
    has been measured); with `ends` nobody answers any more. `surge`: there is room to start a new one first."""

    lines: Sequence[Line] = ()
    again: bool = False
    starts: Sequence[tuple[str, Sequence[str]]] = ()
    lacking: int = 0
    why_not: str | None = None
    gap: bool = False
    ends: bool = False
    away_s: float | None = None
    surge: bool = False

    @property
    def npus(self) -> int:
        return sum(len(spot.npus) for line in self.lines for spot in line.spots)

    @property
    def minutes(self) -> int | None:
        return None if not self.away_s else max(1, -(-round(self.away_s) // 60))

    @property
    def requests(self) -> int | None:
        """How many run now on what is hit; None where that is not known of one that answers."""
        serving = [line for line in self.lines if line.replica.state in engine_figures.ANSWERING]
        if any(line.figures.running is None or line.figures.overdue_since for line in serving):
            return None
        return sum(line.running for line in serving)


def of_end(page: Page) -> Hit:
    """Stopping: all that is there."""
    return Hit(page.lines, ends=True)


def of_restart(page: Page, numbers: Sequence[int]) -> Hit:
    """One after the other; no numbers: all of them. Raises NotFound, Conflict."""
    deployments.check_not_moving(page.deployment)
    lines = _lines(page, [row.n for row in deployments.restarted(page.deployment, numbers)])
    serving = [line for line in page.lines if line.replica.state in SERVING]
    gap = len(serving) == 1 and serving[0] in lines
    return Hit(lines, True, gap=gap, away_s=revisions.last_start_s(page.deployment))


def of_back(page: Page, n: int, how: str) -> Hit:
    """Going to another revision: all that are of a different one. Raises ConsoleError."""
    return of_plan(page, revisions.plan_back(page.deployment, n, how=how))


def of_plan(page: Page, found: Mapping[str, Any]) -> Hit:
    """Of what revisions.plan says."""
    lines = _lines(page, [row["n"] for row in found["restarts"]])
    return Hit(lines, True, gap=found["no_service"], away_s=found["away_s"], surge=found["surge"])


def of_scale(page: Page, replicas: int) -> Hit:
    """Raises ConsoleError."""
    found = scaling.plan(page.deployment, replicas)
    starts = [(row["server"], row["npus"]) for row in found["starts"]]
    return Hit(
        _lines(page, [row["n"] for row in found["stops"]]), starts=starts, lacking=found["lacking"],
        why_not=found["why_not"], ends=replicas == 0 and page.serving > 0,
    )  # fmt: skip


def _lines(page: Page, numbers: Iterable[int]) -> list[Line]:
    """In the order asked for."""
    by_n = {line.replica.n: line for line in page.lines}
    return [by_n[n] for n in numbers if n in by_n]
