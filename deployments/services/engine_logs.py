"""Logs of engines: one piece for each start of an engine (EngineLog), read as the log of an attempt is.

A page follows the topic `replica:<pk>`; it speaks as `job:<id>` does, with the id of the piece where that has the
attempt, so that one viewer shows both:
    "state"  what `deployment_json.replica` says, whenever something of the replica has changed
    "log"    {attempt: "e7-2", first, n, text}, text being raw spool records joined by newlines; seq is the last line
    "head"   {attempt}, each second while it moves; seq is its last line
    "behind" {attempt, first, total}: lines `first` … `total` are there and not sent
A new start begins a new piece: a "log" message with another `attempt`, from line 1 on.
"""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Q
from django.utils import timezone
from django.utils.translation import gettext as _

from console.errors import NotFound
from deployments.models import AgentLog, EngineLog, Replica
from deployments.services import log_keeping, logs

KEPT_PIECES = 40  # of each server of a replica; one is at most 10 MB
BATCH = 20  # rows of one piece are many


def pieces(replica: Replica) -> list[EngineLog]:
    """All that are kept, newest first: those of the server that answers, then those of its other servers."""
    return sorted(replica.logs.order_by("-n"), key=lambda one: one.server_id != replica.server_id)


def newest(replica: Replica) -> EngineLog | None:
    """Of the server that answers, for that one speaks for the whole replica."""
    return replica.logs.filter(server=replica.server_id).order_by("-n").first()


def find(replica: Replica, piece: str = "") -> EngineLog | None:
    """The piece of that id, or the newest; None before its engine has written anything. Raises NotFound."""
    if not piece:
        return newest(replica)
    found = replica.logs.filter(pk=piece[:40]).first()
    if found is None:
        raise NotFound(
            _("This replica has no log “%(piece)s”.") % {"piece": piece[:40]},
            _("Open its log and choose a piece."),
            code="no_such_log",
        )
    return found


def lines(log: EngineLog | AgentLog | None, after_line: int | None, before_line: int | None, n: int) -> dict[str, Any]:
    """What the log viewer asks for: {attempt, first, n, total, text, done, state}; without a place the last lines."""
    if log is None:
        return {"attempt": None, "first": 1, "n": 0, "total": 0, "text": "", "done": False, "state": ""}
    if gone := log_keeping.said(log):
        return {"attempt": log.pk, **log_keeping.NO_LINES, "state": "ended", "deleted": gone}
    found = logs.asked(log, after_line, before_line, n)
    return {"attempt": log.pk, **vars(found), "done": log.done, "state": "ended" if log.done else "running"}


def prune() -> int:
    """Old pieces go: those that ended ENGINE_LOG_DAYS ago, all of a replica that did, and those beyond the newest
    KEPT_PIECES of each server of a replica."""
    long_ago = timezone.now() - timedelta(days=settings.ENGINE_LOG_DAYS)
    old = EngineLog.objects.filter(Q(replica__ended_at__lt=long_ago) | Q(done=True, ended_at__lt=long_ago))
    pruned = 0
    while keys := list(old.order_by("pk").values_list("pk", flat=True)[:BATCH]):
        pruned += _delete(keys)
    many = EngineLog.objects.order_by().values_list("replica_id", "server_id").annotate(count=Count("pk"))
    for replica, server, _count in list(many.filter(count__gt=KEPT_PIECES)):
        rows = EngineLog.objects.filter(replica=replica, server=server).order_by("-n").values_list("pk", "done")
        keys = [pk for pk, done in rows[KEPT_PIECES:] if done]
        pruned += sum(_delete(keys[at : at + BATCH]) for at in range(0, len(keys), BATCH))
    return pruned


def _delete(keys: list[str]) -> int:
    return EngineLog.objects.filter(pk__in=keys).delete()[1].get("deployments.EngineLog", 0)
