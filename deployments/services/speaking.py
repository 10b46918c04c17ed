"""Whether console and agent understand each other: each works with one protocol more and one less than its own."""

from django.utils.translation import gettext as _

from console.errors import Conflict
from deployments.agent import PROTOCOL
from deployments.agent.dispatch import UPGRADE
from deployments.models import Server


def check_speaks(server: Server, kind: str) -> None:
    """Raises Conflict where console and agent are too far apart to understand each other; one apart is fine."""
    apart = server.agent_protocol - PROTOCOL
    if kind == UPGRADE or not server.agent_version or abs(apart) <= 1:
        return
    name = {"server": server.name, "version": server.agent_version}
    if apart > 0:
        raise Conflict(
            _("The agent of %(server)s (%(version)s) is much newer than this console.") % name,
            _("Upgrade the console, or bring the agent to the console's version."),
            code="agent_too_new",
        )
    raise Conflict(
        _("The agent of %(server)s (%(version)s) is too old for this console.") % name,
        _("Upgrade it on the page “Agents”, then queue the job again."),
        code="agent_too_old",
    )
