"""Whether a job needs root, and whether the agent of its server has a way to it."""

from types import ModuleType
from typing import Any

from django.utils.translation import gettext as _

from console.errors import Conflict
from console.language import pick
from deployments.models import Server

KNOWN_TO_ALL = {"reboot"}  # actions that root helpers of every version know


def check(server: Server, module: ModuleType, read: Any) -> None:
    """Raises Conflict where these parameters need root, and the server's agent has no way to it, or one of another
    version that may not know what is asked."""
    asked = _asked_of_root(module, read)
    if not asked:
        return
    if server.has_root:
        if not server.simulated and server.facts.get("root") == "old" and asked - KNOWN_TO_ALL:
            raise old_helper(server)
        return
    joins = _("Join %(server)s again as root, without NO_ROOT_HELPER, or choose another server.")
    own = _("%(server)s is the console's own machine, whose agent never gets one: do it there by hand.")
    raise Conflict(
        _("“%(kind)s” needs root, and the agent on %(server)s has no root helper.")
        % {"kind": pick(module.TITLE), "server": server.name},
        (own if server.is_local else joins) % {"server": server.name},
        code="no_root",
    )


def is_needed(module: ModuleType, read: Any) -> bool:
    """Whether a kind needs root with these parameters: it says that it may, and one of its steps does."""
    return bool(_asked_of_root(module, read))


def _asked_of_root(module: ModuleType, read: Any) -> set[str]:
    """The actions of the root helper that a job with these parameters asks for."""
    steps = module.steps(read) if getattr(module, "NEEDS_ROOT", False) else ()
    return {step.argv[0] for step in steps if step.needs_root}


def old_helper(server: Server) -> Conflict:
    """The refusal where the helper may not know the actions of a job."""
    return Conflict(
        _("The root helper of %(server)s is of an older version and does not know these steps.")
        % {"server": server.name},
        _("Run the command for joining again on %(server)s as root; its jobs go on meanwhile.")
        % {"server": server.name},
        code="old_root_helper",
    )
