"""Install, roll back and uninstall stacks: what a job of theirs is filled in with, and why one cannot be queued."""

import dataclasses
import hashlib
from datetime import timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _

from console.errors import Conflict, ConsoleError, NotFound
from console.language import pick
from deployments import kinds
from deployments.models import Job, Server
from deployments.services import (
    faults,
    filling,
    host_changes,
    in_use,
    npu_choice,
    package_sources,
    root_access,
    stacks,
    wheel_bundles,
)
from deployments.stacks import frozen, plan
from deployments.stacks.catalogue import Stack
from deployments.stacks.draft import as_step
from deployments.stacks.installed import NAME
from deployments.stacks.options import INNER, Options, word
from deployments.stacks.versions import at_least

JUST_NOW = timedelta(minutes=5)


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


def options_for(server: Server, given: dict[str, Any], stack: Stack | None = None) -> Options:
    """The choices of a form or of REST, with the name of a bundle made into what the server does with it.

    Raises Invalid, NotFound, and Conflict for a bundle that is not for this server, or not of `stack`.
    """
    texts = {name: value for name, value in given.items() if isinstance(value, str) and name not in INNER}
    if name := texts.pop("bundle", "").strip():
        found = wheel_bundles.find(name)
        texts["python"] = texts.get("python") or _python_for(server, found, stack)
        texts |= {"bundled": " ".join(found.package_names), "layering": "wheels"}  # it holds no source
        if server.is_local:  # it lies on the same machine
            texts |= {"wheelhouse": str(found.wheels), "bundled_in": str(found.packages) if texts["bundled"] else ""}
        else:
            texts["bundle"] = f"{found.name}@{found.digest}"
    elif not texts.get("index"):
        texts |= {"index": settings.PACKAGE_INDEX}
        texts["extra_index"] = texts.get("extra_index") or settings.PACKAGE_EXTRA_INDEX
    options = stacks.read_options(texts)
    return dataclasses.replace(options, private="yes") if package_sources.is_private(options) else options


def _python_for(server: Server, kept: wheel_bundles.Kept, stack: Stack | None) -> str:
    """The Python of the server that the bundle's wheels are for, '' where it has not told of any. Raises Conflict."""
    has = stacks.row_of(server).has
    if stack is not None and kept.stack != stack.name:
        raise Conflict(
            _("The bundle %(bundle)s is one of %(stack)s.") % {"bundle": kept.name, "stack": kept.stack},
            _("Choose a bundle of the stack that you install."),
            code="other_stack",
        )
    if has.arch and has.arch != kept.arch:
        raise Conflict(
            _("The bundle %(bundle)s is for %(arch)s, and %(server)s is %(own)s.")
            % {"bundle": kept.name, "arch": kept.arch, "server": server.name, "own": has.arch},
            _("Choose a bundle that was made with --arch %(own)s.") % {"own": has.arch},
            code="other_arch",
        )
    if has.glibc and kept.glibc and not at_least(has.glibc, kept.glibc):
        raise Conflict(
            _("The wheels of the bundle %(bundle)s need glibc %(glibc)s, and %(server)s has %(own)s.")
            % {"bundle": kept.name, "glibc": kept.glibc, "server": server.name, "own": has.glibc},
            _("Choose a bundle that was made with --glibc %(own)s.") % {"own": has.glibc},
            code="other_glibc",
        )
    made_of = [one for one in has.pythons or () if not {"venv", "stacks"} & set(one.path.split("/"))]
    every = [*([has.python] if has.python else []), *(one.version for one in made_of if one.version)]
    if not every:
        return ""
    fitting = [version for version in every if version.split(".")[:2] == kept.python.split(".")[:2]]
    if not fitting:
        raise Conflict(
            _("The bundle %(bundle)s is for Python %(python)s, and %(server)s has: %(versions)s.")
            % {"bundle": kept.name, "python": kept.python, "server": server.name,
               "versions": ", ".join(dict.fromkeys(every))},
            _("Choose a bundle that was made for one of these: bundle make --python 3.11."),
            code="other_python",
        )  # fmt: skip
    return fitting[0]


def plan_of(server: Server, stack: Stack, options: Options) -> plan.Plan:
    return stacks.plan_for(server, stack, options, None)


def digest(made: plan.Plan) -> str:
    """Of the steps: who confirms a plan names what he has seen."""
    return digest_of(frozen.write(made))


def digest_of(text: str) -> str:
    """The same of a plan that is frozen already: what a job runs."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_shown(server: Server, seen: str, digest: str) -> None:
    """Raises Conflict where what is to be confirmed is another plan than was shown; it names a job that ended just
    now, whose changes the server tells of a moment later."""
    if seen == digest:
        return
    what = _("The plan is another one than was shown: what the server tells of itself has changed.")
    changing = [name for name in kinds.names() if getattr(kinds.load(name), "CHANGES_FACTS", False)]
    ended = Job.objects.filter(server=server, kind__in=changing, ended_at__gte=timezone.now() - JUST_NOW)
    if last := ended.order_by("-ended_at").first():
        what = _("The plan is another one than was shown: job #%(id)s (%(kind)s) has just ended on %(server)s.") % {
            "id": last.pk, "kind": pick(kinds.title(last.kind)), "server": server.name,
        }  # fmt: skip
    raise Conflict(what, _("Look at the steps below, then confirm again."), code="plan_changed")


def obstacle(server: Server, made: plan.Plan) -> ConsoleError | None:
    """Why this plan cannot be queued; None where it can."""
    if made.refusals:
        return Conflict(
            " ".join(pick(one.text) for one in made.refusals), _("Choose another stack or server."), code="no_way"
        )
    if server.simulated:  # it acts out the host layer and what needs root, with a root helper that is simulated, too
        return _gaps(made) or _held(server, made)
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
        return root_access.old_helper(server)
    if any(step.needs_root for step in made.to_run) and not server.has_root:
        return Conflict(
            _("The plan changes a CANN that all stacks share, and the agent of %(server)s has no root helper.")
            % {"server": server.name},
            (
                _("Choose “%(own)s” for the place of CANN.")
                if server.is_local
                else _("Choose “%(own)s” for the place of CANN, or join it again as root, without NO_ROOT_HELPER.")
            )
            % {"own": pick(word("cann", "own"))},
            code="shared_cann",
        )
    return _gaps(made)


def _gaps(made: plan.Plan) -> ConsoleError | None:
    if not made.gaps:
        return None
    return Conflict(
        " ".join(map(pick, made.gaps)),
        _("Name it among the choices of the plan, or note the digest, then plan again."),
        code="gaps",
    )


def _held(server: Server, made: plan.Plan) -> ConsoleError | None:
    """Why the host layer cannot change while processes hold NPUs."""
    held = in_use.of(server).processes if made.changes_host else None
    if not held:
        return None
    named = ", ".join(f"{one.get('pid') or '?'} ({one.get('user') or '?'})" for one in held[:5])
    return Conflict(
        _("The plan changes driver or firmware of %(server)s, and processes hold its NPUs: %(processes)s.")
        % {"server": server.name, "processes": named},
        _("Choose a server whose NPUs are free, or wait until these have ended."),
        code="npus_held",
    )


def _by_hand() -> str:
    return _("It is the console's own machine, whose agent never gets one: run the steps there by hand.")


def fill_install(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """The plan as it is now. Raises ConsoleError where it cannot run."""
    stack = stacks.find(str(params["stack"]))
    made = plan_of(server, stack, options_for(server, params, stack))
    faults.check(server, made, params)
    if wrong := obstacle(server, made):
        raise wrong
    return filled(server, made)


def filled(server: Server, made: plan.Plan) -> dict[str, Any]:
    """What a job is filled in with: the NPUs that it holds are all where it changes what is below them, and one where
    it only tries the stack."""
    more: dict[str, Any] = {}
    if made.changes_host:
        now = host_changes.now(server)
        more = {"npus": host_changes.npus_of(server), "before": f"{now['driver'] or ''} {now['firmware'] or ''}"}
    elif tries_npu(made):
        more = {"npus": npu_choice.names_of_one(server)}
    return {"plan": frozen.write(made), **more}


def chosen_again(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """The NPUs that a job holds which runs its plan once more. Raises BadParams."""
    steps = frozen.read(str(params.get("plan") or ""))
    if frozen.host_part(steps):
        return {"npus": host_changes.npus_of(server)}
    return {"npus": npu_choice.names_of_one(server)} if any(map(frozen.tries_npu, steps)) else {}


def tries_npu(made: plan.Plan) -> bool:
    return any(map(frozen.tries_npu, map(as_step, made.to_run)))


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


filling.FILLERS |= {
    "install": fill_install,
    "drivers": fill_drivers,
    "rollback": fill_rollback,
    "uninstall": fill_uninstall,
}
filling.AGAIN |= {"install": chosen_again, "drivers": chosen_again}
