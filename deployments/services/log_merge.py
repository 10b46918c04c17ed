"""Many logs as one by time: a k-way merge of readers of stored chunks, forwards or backwards, in bounded memory.

The records of one log are never reordered, even where its clock goes backwards; a record without a time stands where
its neighbour does. A place is a line of each source, so every record is read exactly once whatever the clocks say.
"""

import heapq
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db.models import BigIntegerField, Case, OuterRef, QuerySet, Subquery, Value, When

from deployments.chunks import LAST_MS
from deployments.models import Attempt, EngineChunk, EngineLog, LogChunk
from deployments.services.logs import MAX_BYTES, unpack

REFILL = 8  # chunks of one log that are fetched at once; they lie packed until their turn
BUDGET_S = 1.5


class Piece(NamedTuple):
    """One stored log. `start_ms` is where records without any time stand."""

    pk: str
    total: int
    start_ms: int


class Place(NamedTuple):
    """A line of a source: `line` of the piece `pieces[at]`."""

    at: int
    line: int


@dataclass(frozen=True)
class Source:
    """What is one colour in the view: the pieces of one replica on one server, or the attempts of a job, oldest first.

    `offset_s`: how far the clock of its server is ahead of ours; None where that is not known. `deleted` says of pieces
    that are not among `pieces` when the last of them went; '' where none did.
    """

    key: str
    name: str
    server: str
    log: str  # its own page; the id of a piece and #L<line> go behind it
    offset_s: float | None
    state: str = ""
    pieces: list[Piece] = field(default_factory=list)
    deleted: str = ""

    @property
    def total(self) -> int:
        return sum(piece.total for piece in self.pieces)

    @property
    def behind(self) -> Place:
        """Behind its last line."""
        return Place(len(self.pieces) - 1, self.pieces[-1].total + 1) if self.pieces else Place(0, 1)


class Line(NamedTuple):
    """`ms` is its time by our clock, 0 where it has none; `key` is what it is sorted by."""

    source: int
    at: int
    n: int
    key: int
    ms: int
    record: bytes


class Stored(NamedTuple):
    first: int
    n: int
    data: bytes


def rows_of(piece: str) -> tuple[QuerySet[Any], QuerySet[Any], str]:
    """(heads, chunks, name of the chunks' field) of the table that holds a piece of that id."""
    if piece.startswith("e"):
        return EngineLog.objects.all(), EngineChunk.objects.all(), "log_id"
    return Attempt.objects.all(), LogChunk.objects.all(), "attempt_id"


def backwards(sources: Sequence[Source], places: Mapping[str, Place], n: int) -> list[Line]:
    """At most `n` lines right before `places` (source key → a line that is not among them), in order."""
    wanted = {i: _step(one, places[one.key], -1) for i, one in enumerate(sources) if one.key in places}
    first = _first_chunks(sources, wanted)
    streams = [_down(i, sources[i], place, first.get(i)) for i, place in wanted.items() if place]
    return _take(_merge(streams, -1), n)[::-1]


def forwards(sources: Sequence[Source], places: Mapping[str, Place], n: int) -> list[Line]:
    """At most `n` lines that follow `places`; all of a source that is not in there."""
    wanted = {i: _step(one, places.get(one.key, Place(0, 0)), 1) for i, one in enumerate(sources)}
    first = _first_chunks(sources, wanted)
    streams = [_up(i, sources[i], place, first.get(i)) for i, place in wanted.items() if place]
    return _take(_merge(streams, 1), n)


def _step(source: Source, place: Place, by: int) -> Place | None:
    """The line before (-1) or after (1) a place, in the next piece that has one; None where nothing is there."""
    at, line = place.at, place.line + by
    while 0 <= at < len(source.pieces):
        if 1 <= line <= source.pieces[at].total:
            return Place(at, line)
        if by < 0 and line > source.pieces[at].total:  # beyond the end: a reader who was told more than is kept
            line = source.pieces[at].total
            continue
        at += by
        line = source.pieces[at].total if by < 0 and at >= 0 else 1
    return None


def _first_chunks(sources: Sequence[Source], wanted: Mapping[int, Place | None]) -> dict[int, Stored]:
    """The chunk that holds each wanted line: two queries for all sources of a kind."""
    places = {sources[i].pieces[place.at].pk: (i, place.line) for i, place in wanted.items() if place}
    if not places:
        return {}
    heads, chunks, name = rows_of(next(iter(places)))
    line = Case(*(When(pk=pk, then=Value(at[1])) for pk, at in places.items()), output_field=BigIntegerField())
    holding = chunks.filter(**{name: OuterRef("pk"), "first__lte": OuterRef("wanted")}).order_by("-first")
    rows = heads.filter(pk__in=list(places)).annotate(wanted=line)
    found = rows.annotate(chunk=Subquery(holding.values("pk")[:1])).order_by().values_list("pk", "chunk")
    which = {chunk: places[pk][0] for pk, chunk in found if chunk is not None}
    return {which[row.pk]: _stored(row) for row in chunks.filter(pk__in=list(which)).order_by()}


def _stored(row: Any) -> Stored:
    return Stored(row.first, row.n, bytes(row.data))


def _down(i: int, source: Source, place: Place, first: Stored | None) -> Iterator[Line]:
    """Its lines from `place` on, backwards through its pieces."""
    behind: int | None = None  # the key of the line that follows
    for at in range(place.at, -1, -1):
        piece = source.pieces[at]
        last = place.line if at == place.at else piece.total
        for chunk in _chunks(piece.pk, last, first if at == place.at else None, -1):
            for line in reversed(_lines(i, source, at, chunk, behind, later=True)):
                if line.n <= last:
                    yield line
                    behind = line.key


def _up(i: int, source: Source, place: Place, first: Stored | None) -> Iterator[Line]:
    before: int | None = None  # the key of the line before
    for at in range(place.at, len(source.pieces)):
        piece = source.pieces[at]
        low = place.line if at == place.at else 1
        for chunk in _chunks(piece.pk, low, first if at == place.at else None, 1):
            for line in _lines(i, source, at, chunk, before, later=False):
                if low <= line.n <= piece.total:
                    yield line
                    before = line.key


def _chunks(piece: str, line: int, first: Stored | None, by: int) -> Iterator[Stored]:
    """The chunk with that line, then those before or after it."""
    if first is not None:
        yield first
        line = first.first - 1 if by < 0 else first.first + first.n
    _heads, chunks, name = rows_of(piece)
    rows = chunks.filter(**{name: piece}).order_by("-first" if by < 0 else "first")
    while line > 0:
        # `first` of a chunk is known, its end is not in an index: upwards a line begins a chunk, or its piece.
        some = rows.filter(first__lte=line) if by < 0 else rows.filter(first__gte=line)
        found = [_stored(row) for row in some[:REFILL]]
        yield from found
        if not found:
            return
        line = found[-1].first - 1 if by < 0 else found[-1].first + found[-1].n


def _lines(i: int, source: Source, at: int, chunk: Stored, beside: int | None, *, later: bool) -> list[Line]:
    """The lines of a chunk with their times by our clock.

    What has no time takes that of the line before it. At the chunk's begin that is `beside`, the key of the line next
    to the chunk, or where this one follows (`later`) the next time in the chunk itself.
    """
    ahead_ms = round((source.offset_s or 0.0) * 1000)
    records = unpack(chunk.data)
    stamps = [_stamp(record, ahead_ms) for record in records]
    known = next((ms for ms, _kind in stamps if ms), None)
    nearest = (known, beside) if later else (beside, known)
    key = next((ms for ms in nearest if ms is not None), source.pieces[at].start_ms)
    lines = []
    for n, (record, (ms, kind)) in enumerate(zip(records, stamps, strict=True), start=chunk.first):
        if ms and kind != b"+":  # what goes on a line stays with it
            key = ms
        lines.append(Line(i, at, n, key, ms, record))
    return lines


def _stamp(record: bytes, ahead_ms: int) -> tuple[int, bytes]:
    """(ms by our clock, 0 for none; kind): what logs.split reads, without the text, for most lines are not taken."""
    parts = record.split(b"\t", 2)
    if len(parts) != 3 or not parts[0].isdigit() or len(parts[0]) > 15:
        return 0, b"o"
    ms = min(int(parts[0]), LAST_MS)
    return (max(1, ms - ahead_ms) if ms else 0), parts[1]


def _merge(streams: Iterable[Iterator[Line]], by: int) -> Iterator[Line]:
    """All of them by time. Of equal times those of one log stay together."""
    heap = [(by * line.key, by * line.source, line, stream) for stream in streams if (line := next(stream, None))]
    heapq.heapify(heap)
    while heap:
        _key, _source, line, stream = heap[0]
        while True:
            yield line
            following = next(stream, None)
            if following is None:
                heapq.heappop(heap)
                break
            line = following
            others = heap[1:3]  # the second smallest of a heap is one of these
            if others and by * line.key > min(one[0] for one in others):
                heapq.heapreplace(heap, (by * line.key, by * line.source, line, stream))
                break


def _take(lines: Iterator[Line], n: int) -> list[Line]:
    """At most `n` and MAX_BYTES of them; fewer where reading takes long, at least one where there is one."""
    taken: list[Line] = []
    size, until = 0, time.monotonic() + BUDGET_S
    for line in lines:
        size += len(line.record) + 1
        if taken and size > MAX_BYTES:
            break
        taken.append(line)
        if len(taken) >= n or time.monotonic() > until:
            break
    return taken
