"""Stacks against servers: which there are, what each server has, what is wished, and the plan between them."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import TextField
from django.db.models.functions import Cast
from django.utils.translation import gettext as _

from console import audit
from console.errors import Invalid, NotFound
from console.language import pick
from console.models import User
from deployments.kinds import install
from deployments.models import Server
from deployments.services import faults, jobs, packages
from deployments.services.site_file import SiteFile
from deployments.stacks import installed, plan, verdict
from deployments.stacks.catalogue import Catalogue, Stack, newest_first, with_site_rows
from deployments.stacks.draft import Holder
from deployments.stacks.installed import Installed
from deployments.stacks.options import BadOptions, Options
from deployments.stacks.options import check as check_options
from deployments.stacks.verdict import Verdict

MOST_WISHED = 2000

# ---------- the catalogue ----------

_file = SiteFile(with_site_rows)


def catalogue() -> Catalogue:
    """Built-in and site rows; read anew when the site's file changes."""
    return _file.content(settings.STACKS_FILE)


def find(name: str) -> Stack:
    """The stack of that name. Raises NotFound."""
    stack = catalogue().stacks.get(name)
    if stack is None:
        raise NotFound(
            _("There is no stack “%(name)s”.") % {"name": name[:63]},
            _("Choose one of the catalogue: the page Stacks, or GET /api/v1/stacks."),
            code="unknown_stack",
        )
    return stack


# ---------- what servers have ----------


@dataclass(frozen=True)
class Row:
    """One server as far as stacks go."""

    pk: int
    name: str
    is_local: bool
    simulated: bool
    wished: str
    has: Installed
    like: Installed  # the same without what changes no verdict


# pk -> (hash of the facts' text, family, catalogue, what was read): facts change seldom and are long.
_read_before: dict[int, tuple[int, str, Catalogue, Installed, Installed]] = {}


def rows() -> list[Row]:
    """Every server, by name. One query."""
    known = catalogue()
    found = Server.objects.present().order_by("name").annotate(text=Cast("facts", TextField()))
    listed = list(found.values_list("pk", "name", "is_local", "simulated", "wished_stack", "text", "family"))
    if len(_read_before) > 2 * len(listed) + 100:
        _read_before.clear()
    return [
        Row(pk, name, is_local, simulated, wished, *_read_text(pk, text, family, known))
        for pk, name, is_local, simulated, wished, text, family in listed
    ]


def _read_text(pk: int, text: str, family: str, known: Catalogue) -> tuple[Installed, Installed]:
    before = _read_before.get(pk)
    if before and before[:2] == (hash(text), family) and before[2] is known:
        return before[3:]
    has = _read(json.loads(text), family, known)
    _read_before[pk] = (hash(text), family, known, has, installed.alike(has))
    return _read_before[pk][3:]


def _read(facts: Any, family: str, known: Catalogue) -> Installed:
    return installed.read(facts if isinstance(facts, Mapping) else {}, family, known)


def row_of(server: Server) -> Row:
    has = _read(server.facts, server.family, catalogue())
    return Row(
        server.pk, server.name, server.is_local, server.simulated, server.wished_stack, has, installed.alike(has)
    )


# ---------- verdicts ----------


def verdict_of(row: Row, stack: Stack) -> Verdict:
    return verdict.of(row.like, stack, catalogue())


def counts(servers: Sequence[Row]) -> dict[str, Counter[str]]:
    """{name of the stack: how many servers get each verdict}."""
    groups = Counter(row.like for row in servers)
    result: dict[str, Counter[str]] = {}
    for stack in catalogue().stacks.values():
        tally: Counter[str] = Counter()
        for like, n in groups.items():
            tally[verdict.of(like, stack, catalogue()).word] += n
        result[stack.name] = tally
    return result


@dataclass(frozen=True)
class Drift:
    """A server against its wish: `state` is in_line | drift | blocked | unknown | gone (no such stack any more)."""

    row: Row
    state: str
    found: Verdict | None


STATES = {
    verdict.MATCHES: "in_line", verdict.REACHABLE: "drift", verdict.CANNOT: "blocked", verdict.UNKNOWN: "unknown",
}  # fmt: skip


def drift(servers: Iterable[Row]) -> list[Drift]:
    """Each server with a wish, the worst first."""
    result = []
    for row in servers:
        if not row.wished:
            continue
        stack = catalogue().stacks.get(row.wished)
        found = verdict_of(row, stack) if stack else None
        result.append(Drift(row, STATES[found.word] if found else "gone", found))
    order = ("gone", "blocked", "drift", "unknown", "in_line")
    return sorted(result, key=lambda one: (order.index(one.state), one.row.name))


def has_now(row: Row) -> Stack | None:
    """The stack that a server matches, the newest where several do; None where none does."""
    for stack in newest_first(catalogue().stacks):
        if verdict_of(row, stack).word == verdict.MATCHES:
            return stack
    return None


# ---------- wishes ----------


def wish(names: Sequence[str], stack: str, *, by: User) -> list[Server]:
    """Note the stack that these servers are to have, '' for none. The servers that changed. Raises ConsoleError."""
    jobs.check_may_operate(by)
    if stack:
        find(stack)
    wanted = list(dict.fromkeys(name for name in names if name))
    if not wanted:
        raise Invalid(_("No server was chosen."), _("Choose one or several, then try again."), code="no_server")
    if len(wanted) > MOST_WISHED:
        raise Invalid(
            _("%(n)s servers at once are too many.") % {"n": len(wanted)},
            _("Choose at most %(most)s.") % {"most": MOST_WISHED},
        )
    with transaction.atomic():
        found = list(Server.objects.select_for_update(no_key=True).filter(name__in=wanted).order_by("pk"))
        missing = sorted(set(wanted) - {server.name for server in found})
        if missing:
            raise NotFound(
                _("No server is called: %(names)s.") % {"names": ", ".join(name[:63] for name in missing[:10])},
                _("Nothing was changed. Choose servers of the list."),
                code="unknown_server",
            )
        changed = [server for server in found if server.wished_stack != stack]
        for server in changed:
            before, server.wished_stack = server.wished_stack, stack
            server.save(update_fields=["wished_stack"])
            audit.record(by, "server.stack_wished", server, before=before, after=stack)
    return changed


# ---------- plans ----------


def read_options(given: Mapping[str, str]) -> Options:
    """Options out of the fields of a form or an address. Raises Invalid naming what does not fit."""
    names = {field.name for field in fields(Options)}
    chosen = {name: value.strip()[:300] for name, value in given.items() if name in names and value.strip()}
    options = Options(**chosen)
    try:
        check_options(options)
    except BadOptions as error:
        problems = " ".join(f"{_called(name)}: {pick(text)}" for name, text in error.problems)
        raise Invalid(
            _("Some choices do not fit: %(problems)s") % {"problems": problems}, _("Mend them, then try again.")
        ) from error
    return options


def _called(name: str) -> str:
    """A choice as its form calls it and as REST does."""
    labels = {field.name: field.metadata["label"] for field in fields(install.Params)}
    return f"{pick(labels[name])} ({name})" if name in labels else name


def plan_for(server: Server, stack: Stack, options: Options, holders: Sequence[Holder] | None) -> plan.Plan:
    """The plan for a server as it is now. `holders`: who holds its NPUs, None where nobody knows."""
    npus = [bus_id for bus_id in server.npus.values_list("bus_id", flat=True) if bus_id]
    made = plan.make(row_of(server).has, stack, catalogue(), options, holders=holders, npus=npus)
    return completed(made, simulated=server.simulated)


def host_plan_for(server: Server, options: Options, holders: Sequence[Holder] | None) -> plan.Plan:
    """The plan that changes driver and firmware alone."""
    npus = [bus_id for bus_id in server.npus.values_list("bus_id", flat=True) if bus_id]
    made = plan.host_only(row_of(server).has, catalogue(), options, holders=holders, npus=npus)
    return completed(made, simulated=server.simulated)


def completed(made: plan.Plan, *, simulated: bool, known: Mapping[str, str] | None = None) -> plan.Plan:
    """The plan with the digests of what root runs (`known`, where they were read before), or with the restarts that
    only a simulated server has."""
    return faults.restarting(made) if simulated else packages.sealed(made, known)


# ---------- JSON ----------


def stack_json(stack: Stack, tally: Mapping[str, int] | None = None) -> dict[str, Any]:
    """One row for REST and the command line; null is what no source told."""
    known = catalogue()
    row = known.cann.get(stack.cann.lower())
    made: dict[str, Any] = {
        "name": stack.name, "kind": stack.kind, "state": stack.state, "default": stack.default, "site": stack.site,
        "vllm_ascend": stack.vllm_ascend, "vllm": stack.vllm, "python": stack.python, "cann": stack.cann,
        "cann_by_family": dict(stack.cann_by_family), "nnal": stack.nnal, "torch": stack.torch,
        "torch_npu": stack.torch_npu, "triton_ascend": stack.triton_ascend, "mooncake": stack.mooncake,
        "pins": list(stack.pins), "driver_min": known.driver_min(stack),
        "hdk_paired": list(row.hdk_paired) if row else [], "glibc_min": stack.glibc_min, "wheel": stack.wheel,
        "families": list(stack.families),
        "images": [image._asdict() for image in stack.images], "released": stack.released,
        "notes": stack.notes._asdict(), "sources": list(stack.sources),
    }  # fmt: skip
    if tally is not None:
        made["servers"] = {word: tally.get(word, 0) for word in verdict.WORDS}
    return made


def verdict_json(row: Row, found: Verdict) -> dict[str, Any]:
    return {
        "server": row.name,
        "simulated": row.simulated,
        "verdict": found.word,
        "route": found.route,
        "because": [text._asdict() for text in found.because],
        "steps": [text._asdict() for text in found.steps],
        "asks": [text._asdict() for text in found.gaps],
        "reboots": found.reboots,
        "wished": row.wished or None,
    }


def drift_json(one: Drift) -> dict[str, Any]:
    found = one.found
    return {
        "server": one.row.name,
        "simulated": one.row.simulated,
        "wished": one.row.wished,
        "state": one.state,
        "because": [text._asdict() for text in found.because] if found else [],
        "changes": [text._asdict() for text in found.changes] if found else [],
    }


def catalogue_json(servers: Sequence[Row]) -> dict[str, Any]:
    known, tallies = catalogue(), counts(servers)
    return {
        "version": known.version,
        "default": known.default.name,
        "problems": [problem.text._asdict() for problem in known.problems],
        "drift": [drift_json(one) for one in drift(servers)],
        "stacks": [stack_json(stack, tallies[stack.name]) for stack in newest_first(known.stacks)],
    }
