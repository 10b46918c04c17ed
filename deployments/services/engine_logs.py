"""Logs of engines: one piece for each start of an engine (EngineLog), read as the log of an attempt is.

`after`, `before` and `tail` take a piece and give `logs.Lines`; `engine_chunks_after` and `PlainText` read a whole one.

A page follows the topic `replica:<pk>`; it speaks as `job:<id>` does, with the id of the piece where that has the
attempt, so that one viewer shows both:
    "state"  what `deployment_json.replica` says, whenever something of the replica has changed
    "log"    {attempt: "e7-2", first, n, text}, text being raw spool records joined by newlines; seq is the last line
    "head"   {attempt}, each second while it moves; seq is its last line
    "behind" {attempt, first, total}: lines `first` … `total` are there and not sent
A new start begins a new piece: a "log" message with another `attempt`, from line 1 on.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from console.errors import NotFound
from deployments.models import EngineLog, Replica
from deployments.services.logs import MAX_LINES, Lines, PlainText, after, before, engine_chunks_after, tail

__all__ = [
    "MAX_LINES", "Lines", "PlainText", "after", "before", "engine_chunks_after", "find", "lines", "newest", "pieces",
    "plain_text", "prune", "raw", "tail",
]  # fmt: skip

KEPT_PIECES = 40  # of a replica; one is at most 32 MB
KEPT_DAYS = 30  # those of a replica that has ended
BATCH = 200


def pieces(replica: Replica) -> list[EngineLog]:
    """All that are kept, newest first."""
    return list(replica.logs.order_by("-n"))


def newest(replica: Replica) -> EngineLog | None:
    return replica.logs.order_by("-n").first()


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


def lines(log: EngineLog | None, after_line: int | None, before_line: int | None, n: int) -> dict[str, Any]:
    """What the log viewer asks for: {attempt, first, n, total, text, done, state}; without a place the last lines."""
    if log is None:
        return {"attempt": None, "first": 1, "n": 0, "total": 0, "text": "", "done": False, "state": ""}
    if after_line is not None:
        found = after(log, after_line, n)
    elif before_line is not None:
        found = before(log, before_line, n)
    else:
        found = tail(log, n)
    return {"attempt": log.pk, **vars(found), "done": log.done, "state": "ended" if log.done else "running"}


def raw(log_id: str) -> Iterator[bytes]:
    """A whole piece as plain text, UTF-8, in bounded memory."""
    line, writer = 0, PlainText()
    while chunks := engine_chunks_after(log_id, line):
        for first, n, records in chunks:
            yield "".join(writer.feed(records)).encode("utf-8", "replace")
            line = first + n - 1
    yield "".join(writer.flush()).encode("utf-8", "replace")


def plain_text(found: Lines) -> str:
    """These lines as text; '' for none."""
    writer = PlainText()
    records = found.text.encode().split(b"\n") if found.n else []
    return "".join([*writer.feed(records), *writer.flush()])


def prune() -> int:
    """Old pieces go: those beyond the newest KEPT_PIECES of a replica, and all of one that ended long ago."""
    long_ago = timezone.now() - timedelta(days=KEPT_DAYS)
    pruned = 0
    while keys := list(EngineLog.objects.filter(replica__ended_at__lt=long_ago).values_list("pk", flat=True)[:BATCH]):
        pruned += EngineLog.objects.filter(pk__in=keys).delete()[1].get("deployments.EngineLog", 0)
    for replica in Replica.objects.filter(logs__n__gt=KEPT_PIECES).distinct():
        old = list(replica.logs.order_by("-n").values_list("pk", flat=True)[KEPT_PIECES:])
        pruned += EngineLog.objects.filter(pk__in=old, done=True).delete()[1].get("deployments.EngineLog", 0)
    return pruned
