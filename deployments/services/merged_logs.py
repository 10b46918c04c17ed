"""The logs of several servers in one view by time: replicas of a deployment, nodes of a replica, jobs of a batch.

`read` answers what the page and REST ask: {"sources": [{key, name, server, log, state, lines, offset_s, corrected}],
"left_out", "lines": [[source key, piece, line, ms by our clock or 0, raw record]], "before", "after", "total"}.
`before` and `after` are places to go on from: a line of every source, `key:piece.line` joined by `~`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db.models import Q
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from console.errors import Invalid
from deployments.models import GONE, Attempt, Batch, Deployment, EngineLog, Job, Replica, Server
from deployments.services import log_keeping
from deployments.services.log_merge import Line, Piece, Place, Source, backwards, forwards
from deployments.services.logs import MAX_LINES, PlainText, split

MOST_SOURCES = 200
ENDED_SINCE = timedelta(hours=24)  # replicas that ended longer ago are not in the view, unless one is asked for
TOLD_OFF_S = 0.05  # a smaller difference of clocks is none worth a word
PIECE = ("pk", "next_line", "started_at", "pruned_at")
Row = TypeVar("Row", Attempt, EngineLog)
Key = TypeVar("Key")
KEY = r"[\w.]{1,40}"
PLACE = re.compile(rf"({KEY}):([\w-]{{1,40}})\.(\d{{1,15}})", re.ASCII)
MOST_TEXT = 40 * 1024  # of a place


@dataclass(frozen=True)
class Many:
    """Sources in the order of their names, and how many more there are."""

    sources: list[Source]
    left_out: int = 0


@dataclass(frozen=True)
class Wanted:
    """Which lines: those `before` a place, `after` one, or the last; without the sources that are switched `off`."""

    before: str = ""
    after: str = ""
    n: int = 500
    off: frozenset[str] = frozenset()


def of_deployment(deployment: Deployment, replica: int | None = None) -> Many:
    """Its replicas that are there or ended lately, or the one of that number; one source for each server of each."""
    rows = deployment.replica_set.order_by("-n").only("n", "state", "deployment_id", "server_id", "nodes")
    if replica is not None:
        rows = rows.filter(n=replica)
    else:
        rows = rows.filter(~Q(state__in=GONE) | Q(ended_at__gt=timezone.now() - ENDED_SINCE))
    found = list(rows[: MOST_SOURCES + 1])
    more = rows.count() - MOST_SOURCES if len(found) > MOST_SOURCES else 0
    sources = _of_replicas(deployment.name, found[:MOST_SOURCES][::-1])
    return Many(sources[:MOST_SOURCES], more + len(sources[MOST_SOURCES:]))


def _of_replicas(name: str, replicas: list[Replica]) -> list[Source]:
    rows = EngineLog.objects.filter(replica__in=[one.pk for one in replicas]).order_by("n")
    kept, gone = _pieces(rows.only(*PIECE, "replica_id", "server_id"), lambda one: (one.replica_id, one.server_id))
    seen = [*kept, *gone]
    places = {one.pk: list(dict.fromkeys([*one.server_ids, *(s for r, s in seen if r == one.pk)])) for one in replicas}
    servers = _servers(server for many in places.values() for server in many)
    return [
        Source(
            f"{one.n}.{server}", f"#{one.n} {servers[server][0]}" if len(places[one.pk]) > 1 else f"#{one.n}",
            servers[server][0], f"{reverse('deployments:replica-log', args=[name, one.n])}?piece=",
            servers[server][1], one.state, kept.get((one.pk, server), []), gone.get((one.pk, server), ""),
        )
        for one in replicas for server in places[one.pk] if server in servers
    ]  # fmt: skip


def of_batch(batch: Batch) -> Many:
    """Its jobs, a source each: one log for each attempt."""
    jobs = batch.jobs.order_by("wave", "pk").values_list("pk", "server_id", "state")
    found, more = list(jobs[: MOST_SOURCES + 1]), 0
    if len(found) > MOST_SOURCES:
        more = Job.objects.filter(batch=batch).count() - MOST_SOURCES
    rows = Attempt.objects.filter(job__in=[pk for pk, _server, _state in found]).order_by("n")
    kept, gone = _pieces(rows.only(*PIECE, "job_id"), lambda one: one.job_id)
    servers = _servers(server for _pk, server, _state in found)
    sources = [
        Source(
            str(pk), servers[server][0], servers[server][0],
            f"{reverse('deployments:job-detail', args=[pk])}?attempt=", servers[server][1], state, kept.get(pk, []),
            gone.get(pk, ""),
        )
        for pk, server, state in found[:MOST_SOURCES]
    ]  # fmt: skip
    return Many(sources, more)


def _pieces(rows: Iterable[Row], source: Callable[[Row], Key]) -> tuple[dict[Key, list[Piece]], dict[Key, str]]:
    """Those whose lines are there, and what is said of those whose lines were deleted, by source."""
    kept: dict[Key, list[Piece]] = {}
    gone: dict[Key, str] = {}
    for one in rows:
        if told := log_keeping.said(one):
            gone[source(one)] = told
        else:
            kept.setdefault(source(one), []).append(Piece(one.pk, one.next_line - 1, _ms(one.started_at)))
    return kept, gone


def all_gone(many: Many) -> str:
    """What is said in place of the view where the lines of all its logs were deleted; '' for one with lines."""
    told = [one.deleted for one in many.sources if one.deleted]
    return told[0] if told and not any(one.pieces for one in many.sources) else ""


def _servers(keys: Iterable[int]) -> dict[int, tuple[str, float | None]]:
    rows = Server.objects.filter(pk__in=set(keys)).order_by()
    return {pk: (name, offset) for pk, name, offset in rows.values_list("pk", "name", "clock_offset_s")}


def _ms(at: datetime | None) -> int:
    return int(at.timestamp() * 1000) if at else 0


def read(many: Many, wanted: Wanted) -> dict[str, Any]:
    """Lines as the view takes them. Raises Invalid, and 410 where the lines of all of them were deleted."""
    log_keeping.check_left(all_gone(many))
    sources = [one for one in many.sources if one.key not in wanted.off]
    ends = {one.key: one.behind for one in sources}
    n = max(1, min(wanted.n, MAX_LINES))
    if wanted.after:
        seen = read_places(wanted.after, sources)
        lines = forwards(sources, seen, n)
        before, after = seen, _moved(sources, seen, lines)
    else:
        low = read_places(wanted.before, sources) if wanted.before else ends
        lines = backwards(sources, low, n)
        before = {**low, **_moved(sources, {}, lines[::-1])}
        after = _moved(sources, {key: Place(at, line - 1) for key, (at, line) in low.items()}, lines)
    return {
        "sources": [as_json(one) for one in many.sources],
        "left_out": many.left_out,
        "lines": [_line(sources, line) for line in lines],
        "before": places_text(before, sources),
        "after": places_text(after, sources),
        "total": sum(one.total for one in sources),
    }


def _moved(sources: list[Source], places: Mapping[str, Place], lines: list[Line]) -> dict[str, Place]:
    """Those places with the last of `lines` of each source in their stead."""
    return {**places, **{sources[line.source].key: Place(line.at, line.n) for line in lines}}


def _line(sources: list[Source], line: Line) -> list[Any]:
    source = sources[line.source]
    return [source.key, source.pieces[line.at].pk, line.n, line.ms, line.record.decode("utf-8", "replace")]


def as_json(source: Source) -> dict[str, Any]:
    return {
        "key": source.key,
        "name": source.name,
        "server": source.server,
        "log": source.log,
        "state": source.state,
        "deleted": source.deleted,
        "lines": source.total,
        "offset_s": source.offset_s,
        "corrected": abs(source.offset_s or 0.0) >= TOLD_OFF_S,
    }


def places_text(places: Mapping[str, Place], sources: list[Source]) -> str:
    pieces = {one.key: one.pieces for one in sources}
    return "~".join(f"{key}:{pieces[key][at].pk}.{line}" for key, (at, line) in places.items() if pieces.get(key))


def read_places(text: str, sources: list[Source]) -> dict[str, Place]:
    """What `places_text` wrote. A piece that is gone by now counts as read. Raises Invalid."""
    order = {one.key: {piece.pk: at for at, piece in enumerate(one.pieces)} for one in sources}
    places: dict[str, Place] = {}
    for word in text.split("~") if len(text) <= MOST_TEXT else ["?"]:
        found = PLACE.fullmatch(word)
        if found is None:
            raise Invalid(
                _("That is no place in these logs."),
                _("Send `before` or `after` as an answer gave them, or leave them out for the last lines."),
                code="no_such_place",
            )
        if found and found[1] in order:
            places[found[1]] = Place(
                order[found[1]].get(found[2], 0), int(found[3]) if found[2] in order[found[1]] else 0
            )
    return places


def plain_text(answer: dict[str, Any]) -> str:
    """Lines as text: time by our clock, name of the source, what was written. Tab between them."""
    names = {one["key"]: one["name"] for one in answer["sources"]}
    made = []
    for key, _piece, _n, ms, record in answer["lines"]:
        _stamp, kind, text = split(record.encode())
        writer = PlainText()
        row = f"{ms}\t{kind if kind != '+' else 'o'}\t{text}".encode()
        for line in [*writer.feed([row]), *writer.flush()]:
            stamp, _tab, words = line.partition("\t")
            made.append(f"{stamp}\t{names[key]}\t{words}")
    return "".join(made)
