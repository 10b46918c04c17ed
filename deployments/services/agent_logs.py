"""What agents print themselves: a piece for each start of an agent (AgentLog), read as the log of an engine is.

A page follows the topic `agent:<pk of the server>`, which speaks as `replica:<pk>` does, without "state".
"""

from datetime import timedelta

from django.conf import settings
from django.db.models import Count
from django.utils import timezone
from django.utils.translation import gettext as _

from console.errors import NotFound
from deployments.models import AgentLog, Server

KEPT_PIECES = 10  # of each server; one is at most 8 MB
BATCH = 20


def pieces(server: Server) -> list[AgentLog]:
    """All that are kept, newest first."""
    return list(server.agent_logs.order_by("-n"))


def newest(server: Server) -> AgentLog | None:
    return server.agent_logs.order_by("-n").first()


def find(server: Server, piece: str = "") -> AgentLog | None:
    """The piece of that id, or the newest; None before its agent has sent anything. Raises NotFound."""
    if not piece:
        return newest(server)
    found = server.agent_logs.filter(pk=piece[:40]).first()
    if found is None:
        raise NotFound(
            _("The agent of this server has no log “%(piece)s”.") % {"piece": piece[:40]},
            _("Open its log and choose a piece."),
            code="no_such_log",
        )
    return found


def prune() -> int:
    """Pieces that ended ENGINE_LOG_DAYS ago go, and those beyond the newest KEPT_PIECES of a server."""
    long_ago = timezone.now() - timedelta(days=settings.ENGINE_LOG_DAYS)
    old = AgentLog.objects.filter(done=True, ended_at__lt=long_ago).order_by("pk")
    pruned = 0
    while keys := list(old.values_list("pk", flat=True)[:BATCH]):
        pruned += _delete(keys)
    many = AgentLog.objects.order_by().values("server_id").annotate(count=Count("pk")).filter(count__gt=KEPT_PIECES)
    for server in list(many.values_list("server_id", flat=True)):
        rows = AgentLog.objects.filter(server=server).order_by("-n").values_list("pk", flat=True)
        pruned += _delete(list(rows[KEPT_PIECES:]))
    return pruned


def _delete(keys: list[str]) -> int:
    return AgentLog.objects.filter(pk__in=keys).delete()[1].get("deployments.AgentLog", 0)
