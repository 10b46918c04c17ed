"""The form of a campaign: what was chosen, and what would follow from it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from django.http import QueryDict

from console.errors import ConsoleError
from deployments.kinds import install
from deployments.models import Server
from deployments.services import campaign_plan, campaigns, selection, stacks
from deployments.services.batch_page import whole
from deployments.services.campaign_plan import Line, Table
from deployments.services.campaign_rings import Order
from deployments.stacks import options
from deployments.stacks.catalogue import newest_first
from deployments.steps import Text

MOST_LINES = 300


@dataclass(frozen=True)
class Preview:
    """What it would do, or why it cannot be."""

    table: Table | None = None
    refusal: ConsoleError | None = None

    @property
    def digest(self) -> str:
        return self.table.digest if self.table else ""

    @property
    def counts(self) -> list[tuple[str, int]]:
        return [(word, n) for word, n in self.table.counts().items() if n] if self.table else []

    @property
    def simulated(self) -> int:
        return sum(line.server.simulated for line in self.table.lines) if self.table else 0

    @property
    def real(self) -> int:
        return len(self.table.lines) - self.simulated if self.table else 0

    @property
    def silent(self) -> list[Server]:
        return [line.server for line in self._able() if line.server.is_offline]

    @property
    def held(self) -> list[Server]:
        return campaign_plan.held_now([line.server for line in self._able()])

    @property
    def rings(self) -> list[tuple[Text, list[Line]]]:
        """[(title, lines)] in order; those that cannot are in none."""
        if self.table is None:
            return []
        found: dict[int, list[Line]] = {ring: [] for ring in self.table.placed.titles}
        for line in self._able():
            found[self.table.placed.places[line.server.pk].ring].append(line)
        return [(self.table.placed.titles[ring], lines) for ring, lines in sorted(found.items()) if lines]

    @property
    def cannot(self) -> list[Line]:
        return [line for line in self.table.lines if line.word == "cannot"] if self.table else []

    def _able(self) -> list[Line]:
        return [line for line in self.table.lines if line.word != "cannot"] if self.table else []


def preview(stack: str, params: dict[str, Any], asked: selection.Asked, order: Order) -> Preview:
    try:
        return Preview(campaigns.planned(stack, params, asked, order)[0])
    except ConsoleError as error:
        return Preview(refusal=error)


def read_order(given: QueryDict) -> Order:
    """Raises Invalid where a number is none."""
    plain = Order()
    return Order(
        canary=whole(given, "canary", plain.canary),
        by=given.get("by") or plain.by,
        size=whole(given, "size", plain.size),
        label=given.get("label", "").strip()[:63],
        values=given.get("values", "").replace(",", " ").split()[:50],
        at_once=whole(given, "at_once", plain.at_once),
        spread="spread" in given if "full" in given else plain.spread,
        soak_min=whole(given, "soak_min", plain.soak_min),
        stop_after=whole(given, "stop_after", plain.stop_after),
    )


def drifted(stack: str) -> selection.Asked:
    """The servers that are to have this stack, and can be brought there, but have it not."""
    found = stacks.drift(row for row in stacks.rows() if row.wished == stack)
    return selection.Asked(names=[one.row.name for one in found if one.state == "drift"], fleet="both")


def read_params(given: QueryDict) -> dict[str, str]:
    """The choices of the plan that are given."""
    chosen = {name: given.get(name, "").strip()[:300] for name in campaign_plan.param_names()}
    return {name: value for name, value in chosen.items() if value}


def choices() -> list[dict[str, Any]]:
    """The fields of the choices: {name, label, choices, default, help}."""
    made = []
    for one in fields(install.Params):
        if one.name in campaign_plan.param_names():
            words = one.metadata["limits"].get("choices") or ()
            meta, named = one.metadata, {"name": one.name, "choices": words, "default": one.default}
            made.append({**named, "label": meta["label"], "help": meta.get("help")})
    return made


def said(params: Mapping[str, str]) -> list[tuple[Text, Text]]:
    """[(label, how its value reads)] of choices, in the order of the form."""
    given = [one for one in choices() if one["name"] in params]
    return [(one["label"], options.word(one["name"], params[one["name"]])) for one in given]


def offered() -> list[str]:
    """Names of stacks that can be installed, the newest first."""
    return [stack.name for stack in newest_first(stacks.catalogue().stacks) if stack.state != "withdrawn"]
