"""Install, roll back and uninstall stacks: what a job of theirs is filled in with, and why one cannot be queued."""

import hashlib
from typing import Any, NamedTuple

from django.conf import settings
from django.utils.translation import gettext as _

from console.errors import Conflict, ConsoleError, NotFound
from console.language import pick
from deployments.models import Server
from deployments.services import jobs, stacks, wheel_bundles
from deployments.stacks import frozen, plan
from deployments.stacks.catalogue import Stack
from deployments.stacks.installed import NAME
from deployments.stacks.options import Options


class Beside(NamedTuple):
    """The stacks on a server, as its agent tells: folder, the one in use and the one before ('' for none), all."""

    root: str
    current: str
    before: str
    names: tuple[str, ...]


def beside(server: Server) -> Beside:
    has = stacks.row_of(server).has
    inside = f"{has.root}/"
    found = {p.path.removeprefix(inside).split("/")[0] for p in has.pythons or () if p.path.startswith(inside)}
    before = server.facts.get("stack_before")
    before = before if isinstance(before, str) and NAME.fullmatch(before) else ""
    return Beside(has.root, has.current or "", before, tuple(sorted(name for name in found if NAME.fullmatch(name))))


def options_for(server: Server, given: dict[str, Any]) -> Options:
    """The choices of a form or of REST, with the name of a bundle made into what the server does with it.

    Raises Invalid, NotFound.
    """
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    if name := texts.pop("bundle", "").strip():
        found = wheel_bundles.find(name)
        if server.is_local:  # it lies on the same machine
            texts["wheelhouse"] = str(found.wheels)
        else:
            texts["bundle"] = f"{found.name}@{found.digest}"
    elif not texts.get("index"):
        texts |= {"index": settings.PACKAGE_INDEX}
        texts["extra_index"] = texts.get("extra_index") or settings.PACKAGE_EXTRA_INDEX
    return stacks.read_options(texts)


def plan_of(server: Server, stack: Stack, options: Options) -> plan.Plan:
    return stacks.plan_for(server, stack, options, None)


def digest(made: plan.Plan) -> str:
    """Of the steps: who confirms a plan names what he has seen."""
    return digest_of(frozen.write(made))


def digest_of(text: str) -> str:
    """The same of a plan that is frozen already: what a job runs."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def obstacle(server: Server, made: plan.Plan) -> ConsoleError | None:
    """Why this plan cannot be queued; None where it can."""
    if server.simulated:
        return Conflict(
            _("%(server)s is simulated: stacks cannot be installed there.") % {"server": server.name},
            _("Choose a real server; the CPU stack needs no NPU."),
            code="simulated",
        )
    if made.refusals:
        return Conflict(
            " ".join(pick(one.text) for one in made.refusals), _("Choose another stack or server."), code="no_way"
        )
    if made.changes_host:
        return Conflict(
            _("The plan changes driver or firmware of %(server)s, which the console does not do itself.")
            % {"server": server.name},
            _("Run the steps of the host layer by hand as the plan shows them, then install the rest from here."),
            code="host_layer",
        )
    if made.gaps:
        return Conflict(" ".join(map(pick, made.gaps)), _("Name it among the choices of the plan."), code="gaps")
    if any(step.needs_root for step in made.to_run):
        return Conflict(
            _("The plan changes a CANN that all stacks share, which needs root."),
            _("Choose “own” for the place of CANN, or run these steps by hand as the plan shows them."),
            code="shared_cann",
        )
    return None


def fill_install(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """The plan as it is now. Raises ConsoleError where it cannot run."""
    made = plan_of(server, stacks.find(str(params["stack"])), options_for(server, params))
    if wrong := obstacle(server, made):
        raise wrong
    return {"plan": frozen.write(made)}


def fill_rollback(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """The stack before, or the one that is named, and its folder. Raises ConsoleError."""
    there = beside(server)
    name = str(params.get("stack") or there.before)
    if not name:
        raise Conflict(
            _("%(server)s has no stack before the one in use.") % {"server": server.name},
            _("Install one from the page Stacks."),
            code="no_stack_before",
        )
    _must_lie_there(server, there, name)
    if name == there.current:
        raise Conflict(
            _("%(stack)s is in use on %(server)s already.") % {"stack": name, "server": server.name},
            _("Name another stack that lies there: %(names)s.") % {"names": ", ".join(there.names)},
            code="in_use",
        )
    return {"stack": name, "folder": f"{there.root}/{name}"}


def fill_uninstall(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    there, name = beside(server), str(params["stack"])
    _must_lie_there(server, there, name)
    return {"folder": f"{there.root}/{name}"}


def _must_lie_there(server: Server, there: Beside, name: str) -> None:
    if name in there.names:
        return
    raise NotFound(
        _("The stack “%(name)s” does not lie on %(server)s.") % {"name": name[:63], "server": server.name},
        _("It has: %(names)s.") % {"names": ", ".join(there.names) or "—"},
        code="stack_not_there",
    )


jobs.FILLERS |= {"install": fill_install, "rollback": fill_rollback, "uninstall": fill_uninstall}
