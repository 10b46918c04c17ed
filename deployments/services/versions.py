"""Which agents run which version, and how they are brought to the console's own."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.errors import Conflict, ConsoleError, Invalid, NotFound
from console.models import User
from deployments.agent import PROTOCOL, VERSION
from deployments.agent.dispatch import UPGRADE
from deployments.looks import Look
from deployments.models import Batch, Job, Server
from deployments.services import batches, bundle, jobs, selection

FIRST_TO_UPGRADE = 2  # protocol of the first agents that know the job


class Target(NamedTuple):
    """What the console hands out: the version of its own copy."""

    version: str
    code: str
    digest: str
    protocol: int


STATES = {
    "current": Look("state-ok", "ok", gettext_lazy("up to date")),
    "behind": Look("state-warning", "warning", gettext_lazy("behind")),
    "newer": Look("state-info", "info", gettext_lazy("newer than the console")),
    "rejoin": Look("state-warning", "warning", gettext_lazy("too old to upgrade from here")),
    "own": Look("state-ok", "ok", gettext_lazy("comes with the console")),
    "unknown": Look("state-unknown", "stale", gettext_lazy("never heard")),
}
UPGRADABLE = ("behind", "newer")


def target() -> Target:
    """Raises Unavailable where the console's own environment lacks a package of the agent."""
    found = bundle.agent()
    return Target(VERSION, found.code, found.digest, PROTOCOL)


def state_of(server: Server, wanted: Target) -> str:
    """One of STATES."""
    if server.simulated or server.is_local:
        return "own"
    if not server.agent_version:
        return "unknown"
    if server.agent_protocol < FIRST_TO_UPGRADE:
        return "rejoin"
    if server.agent_code == wanted.code:
        return "current"
    own = (PROTOCOL, numbers(wanted.version))
    return "newer" if (server.agent_protocol, numbers(server.agent_version)) > own else "behind"


def shown(server: Server) -> "Row | None":
    """One server's agent for its own page, which is shown also where the console lacks a package of the agent."""
    try:
        state = state_of(server, target())
    except ConsoleError:
        return None
    return Row(server, state, STATES[state])


def numbers(version: str) -> tuple[int, ...]:
    """(0, 10, 2) of "0.10.2"; what is no number counts as 0."""
    parts = version.split(".")[:6]
    return tuple(int(part) if part.isascii() and part.isdigit() and len(part) < 9 else 0 for part in parts)


class Row(NamedTuple):
    """One server's agent."""

    server: Server
    state: str
    look: Look

    @property
    def can_upgrade(self) -> bool:
        return self.state in UPGRADABLE


def rows(wanted: Target) -> list[Row]:
    """All servers of the fleet by name, real ones first. One query."""
    found = Server.objects.present().order_by("simulated", "name").defer("facts", "key", "redis_password")
    return [Row(server, state := state_of(server, wanted), STATES[state]) for server in found]


class Count(NamedTuple):
    """How many real servers run one code."""

    version: str
    code: str
    protocol: int
    state: str
    look: Look
    n: int


def counts(of: Iterable[Row]) -> list[Count]:
    """One for each version, code and state of the real servers, the most frequent first."""
    tally = Counter(
        (row.server.agent_version, row.server.agent_code, row.server.agent_protocol, row.state)
        for row in of
        if not row.server.simulated
    )
    return [Count(*key, STATES[key[3]], n) for key, n in tally.most_common()]


def params(wanted: Target) -> dict[str, str]:
    return {"digest": wanted.digest, "version": wanted.version}


def hit(names: Sequence[str] | None) -> selection.Asked:
    """The selection of these servers, or of all that are behind. Raises NotFound, Invalid, Conflict in words."""
    known = {row.server.name: row for row in rows(target())}
    if names is None:
        chosen = [name for name, row in known.items() if row.state == "behind"]
        if not chosen:
            raise Conflict(_("No agent is behind."), _("There is nothing to upgrade."), code="none_behind")
        return selection.Asked(names=chosen)
    if not names:
        raise Invalid(_("No server was chosen."), _("Choose at least one."), code="no_server")
    if missing := [name for name in names if name not in known]:
        raise NotFound(
            _("There is no server called %(name)s.") % {"name": missing[0][:63]},
            _("Choose one from the list of servers."),
            code="unknown_server",
        )
    for name in names:
        _check_can_upgrade(known[name])
    return selection.Asked(names=list(dict.fromkeys(names)))


def _check_can_upgrade(row: Row) -> None:
    name = {"server": row.server.name}
    if row.can_upgrade:
        return
    if row.state == "own":
        what = _("The agent of %(server)s comes with the console and is upgraded with it.") % name
        raise Conflict(what, _("Leave it out."), code="own_agent")
    if row.state == "current":
        what = _("The agent of %(server)s is up to date.") % name
        raise Conflict(what, _("Leave it out."), code="up_to_date")
    raise Conflict(
        _("The agent of %(server)s cannot be upgraded from here: it is too old, or was never heard.") % name,
        _("Make a command on the page “Join a server”, and paste it there."),
        code="cannot_upgrade",
    )


def upgrade(asked: selection.Asked, plan: batches.Plan, *, by: User, ticket: str = "") -> Batch:
    """A batch that brings these agents to the console's version. Raises as `batches.start`."""
    return batches.start(UPGRADE, params(target()), asked, plan, by=by, ticket=ticket)


def upgrade_one(server: Server, *, by: User) -> Job:
    """A job that does so on one server. Raises as `jobs.queue_job`."""
    wanted = target()
    state = state_of(server, wanted)
    _check_can_upgrade(Row(server, state, STATES[state]))
    return jobs.queue_job(server, UPGRADE, params(wanted), by=by)
