"""Install, roll back and uninstall stacks: what a job of theirs is filled in with, and why one cannot be queued."""

import hashlib
from typing import Any, NamedTuple

from django.conf import settings
from django.utils.translation import gettext as _

from console.errors import Conflict, ConsoleError, NotFound
from console.language import pick
from deployments.models import Server
from deployments.services import host_changes, jobs, stacks, wheel_bundles
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
    return hashlib.sha256(frozen.write(made).encode()).hexdigest()[:16]


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
    if made.mode == "downgrade" and made.stack != plan.HOST_ONLY:
        return Conflict(
            _("The plan takes driver and firmware of %(server)s down, which is a job of its own.")
            % {"server": server.name},
            _("Open “Driver and firmware” of %(server)s, change them there, then install the stack.")
            % {"server": server.name},
            code="downgrade",
        )
    if made.changes_host and not server.has_root:
        return Conflict(
            _("The plan changes driver or firmware of %(server)s, and its agent has no root helper.")
            % {"server": server.name},
            _by_hand()
            if server.is_local
            else _("Join it again as root, without NO_ROOT_HELPER, or run the steps of the host layer by hand."),
            code="host_layer",
        )
    if any(step.needs_root for step in made.to_run) and server.facts.get("root") == "old":
        return Conflict(
            _("The root helper of %(server)s is of an older version and does not know these steps.")
            % {"server": server.name},
            _("Run the command for joining again on %(server)s as root; its jobs go on meanwhile.")
            % {"server": server.name},
            code="old_root_helper",
        )
    if any(step.needs_root for step in made.to_run) and not server.has_root:
        return Conflict(
            _("The plan changes a CANN that all stacks share, and the agent of %(server)s has no root helper.")
            % {"server": server.name},
            _("Choose “own” for the place of CANN.")
            if server.is_local
            else _("Choose “own” for the place of CANN, or join the server again as root, without NO_ROOT_HELPER."),
            code="shared_cann",
        )
    if made.gaps:
        return Conflict(
            " ".join(map(pick, made.gaps)),
            _("Name it among the choices of the plan, or note the digest, then plan again."),
            code="gaps",
        )
    return None


def _by_hand() -> str:
    return _("It is the console's own machine, whose agent never gets one: run the steps there by hand.")


def fill_install(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """The plan as it is now. Raises ConsoleError where it cannot run."""
    made = plan_of(server, stacks.find(str(params["stack"])), options_for(server, params))
    if wrong := obstacle(server, made):
        raise wrong
    return filled(server, made)


def filled(server: Server, made: plan.Plan) -> dict[str, Any]:
    """What a job is filled in with; the NPUs that it holds only where it changes what is below them all."""
    more = {}
    if made.changes_host:
        now = host_changes.now(server)
        more = {"npus": host_changes.npus_of(server), "before": f"{now['driver'] or ''} {now['firmware'] or ''}"}
    return {"plan": frozen.write(made), **more}


def fill_drivers(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """The plan that changes driver and firmware alone. Raises ConsoleError where it cannot run."""
    given = {name: value for name, value in params.items() if isinstance(value, str)}
    made = stacks.host_plan_for(server, stacks.read_options(given), None)
    if wrong := obstacle(server, made):
        raise wrong
    if not made.changes_host:
        raise Conflict(
            _("There is nothing to change on %(server)s.") % {"server": server.name},
            _("Name the versions of driver and firmware."),
            code="nothing_to_do",
        )
    return filled(server, made)


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


jobs.FILLERS |= {
    "install": fill_install,
    "drivers": fill_drivers,
    "rollback": fill_rollback,
    "uninstall": fill_uninstall,
}
