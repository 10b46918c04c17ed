"""Search a log as it is stored, from a line on, for at most a second at a time: whoever asks goes on from `scanned_to`.

Chunks are unpacked and looked through as bytes; only where something may stand, their records are. What is looked at is
the text without colours; of progress that was redrawn its last state, of the console's own events their words.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from console import regexes
from deployments import log_levels
from deployments.services import logs

BUDGET_S = 0.8
MOST_HITS = 1000
MOST_SPANS = 50  # in one line
MOST_BYTES = 1024 * 1024  # of one answer
READ = 16  # chunks
ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~]?)")


@dataclass(frozen=True)
class Query:
    """What is looked for; '' excludes nothing. `level` one of log_levels.LEVELS, `rank` as log_levels.process_of."""

    text: str = ""
    regex: bool = False
    case: bool = False
    level: str = ""
    rank: str = ""


@dataclass(frozen=True)
class Hit:
    """`record` is the raw one; `spans` are [from, to] in UTF-16 units of its text, as scripts count."""

    line: int
    ms: int
    record: bytes
    spans: list[list[int]]


@dataclass
class Found:
    """`hits` in the order of their lines, at most as many as were asked for; `count` of all between where the search
    began and `scanned_to`. `complete`: the end, or going up the beginning, was reached."""

    hits: list[Hit] = field(default_factory=list)
    count: int = 0
    scanned_to: int = 0
    total: int = 0
    complete: bool = False


class Matcher:
    """A query, prepared. Raises Invalid for an expression that cannot be used."""

    def __init__(self, query: Query) -> None:
        self.level, self.rank = query.level, query.rank
        self.find = self._finder(query)
        plain = query.text.encode("utf-8", "replace") if query.text and not query.regex else b""
        self.needle = plain if query.case else plain.lower()
        self.case = query.case

    @staticmethod
    def _finder(query: Query) -> Callable[[bytes], Iterator[tuple[int, int]]] | None:
        if not query.text:
            return None
        if query.regex:
            pattern = regexes.compiled(query.text, case=query.case)
            return lambda text: (one.span() for one in pattern.finditer(text))
        needle = query.text.encode("utf-8", "replace")
        return _plain(needle if query.case else needle.lower(), query.case)

    def may_hold(self, raw: bytes) -> bool:
        """Whether it is worth to look at the records of a chunk; colours may stand within a word."""
        if not self.needle or b"\x1b" in raw or b"\tv\t" in raw:
            return True
        return self.needle in (raw if self.case else raw.lower())

    def spans(self, kind: str, text: bytes) -> list[tuple[int, int]] | None:
        """Where it stands in the text; None where the line does not pass."""
        if self.level and log_levels.of(kind, text) != self.level:
            return None
        if self.rank and log_levels.process_of(text) != self.rank:
            return None
        if self.find is None:
            return []
        found = []
        for span in self.find(_words(text) if kind == "v" else text):
            found.append(span)
            if len(found) >= MOST_SPANS:
                break
        return found or None


def _plain(needle: bytes, case: bool) -> Callable[[bytes], Iterator[tuple[int, int]]]:
    def found(text: bytes) -> Iterator[tuple[int, int]]:
        looked = text if case else text.lower()
        at = looked.find(needle)
        while at >= 0:
            yield at, at + len(needle)
            at = looked.find(needle, at + len(needle))

    return found


def _words(event: bytes) -> bytes:
    """What an event says in either language: texts alone, no names of fields."""

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for one in value.values():
                yield from texts(one)
        elif isinstance(value, list):
            for one in value:
                yield from texts(one)

    return "  ".join(texts(log_levels.read_event(event))).encode("utf-8", "replace")


def matches(matcher: Matcher, first: int, records: list[bytes]) -> Iterator[Hit]:
    """The hits among the records of one chunk, whose first line is `first`."""
    for place, record in enumerate(records):
        stamp, _, rest = record.partition(b"\t")
        kind, parted, text = rest.partition(b"\t")
        if not parted:
            stamp, kind, text = b"0", b"o", record
        if kind == b"g" and matcher.find is not None:
            continue
        if kind == b"p" and place + 1 < len(records) and _kind(records[place + 1]) in b"poe":
            continue  # redrawn by what follows
        shown = ESCAPES.sub(b"", text) if b"\x1b" in text else text
        spans = matcher.spans(kind.decode("ascii", "replace"), shown)
        if spans is not None:
            ms = int(stamp) if stamp.isdigit() and len(stamp) < 16 else 0
            yield Hit(first + place, ms, record, [] if kind == b"v" else _utf16(shown, spans))


def _kind(record: bytes) -> bytes:
    return record.partition(b"\t")[2][:1] or b"-"


def _utf16(text: bytes, spans: list[tuple[int, int]]) -> list[list[int]]:
    if text.isascii():
        return [[start, end] for start, end in spans]

    def units(end: int) -> int:
        return len(text[:end].decode("utf-8", "replace").encode("utf-16-le")) // 2

    return [[units(start), units(end)] for start, end in spans]


def search(
    head: logs.Head, query: Query, *, after: int | None = None, before: int | None = None, n: int = 200,
    stop: bool = False, budget_s: float = BUDGET_S,
) -> Found:  # fmt: skip
    """Hits after a line, or right before one. With `stop`, and always when going up, it ends at the `n`th hit; else
    those behind are counted alone. Raises Invalid."""
    matcher = Matcher(query)
    total = head.next_line - 1
    n = max(1, min(n, MOST_HITS))
    if before is not None:
        return _up(head, matcher, min(before, total + 1), n, total, budget_s)
    return _down(head, matcher, max(0, after or 0), n, total, stop, budget_s)


def _down(
    head: logs.Head, matcher: Matcher, after: int, n: int, total: int, stop: bool, budget_s: float
) -> Found:  # fmt: skip
    found, until, size = Found(scanned_to=after, total=total), time.monotonic() + budget_s, 0
    for first, last, raw in _chunks_down(head, after, total):
        if matcher.may_hold(raw):
            for hit in matches(matcher, first, logs.records_of(raw)):
                if hit.line <= after or hit.line > total:
                    continue
                found.count += 1
                if len(found.hits) < n and size < MOST_BYTES:
                    found.hits.append(hit)
                    size += len(hit.record)
                if stop and (len(found.hits) >= n or size >= MOST_BYTES):
                    found.scanned_to = hit.line
                    found.complete = hit.line >= total
                    return found
        found.scanned_to = max(found.scanned_to, min(last, total))
        if time.monotonic() > until:
            break
    else:
        found.scanned_to = max(after, total)
    found.complete = found.scanned_to >= total
    return found


def _up(head: logs.Head, matcher: Matcher, before: int, n: int, total: int, budget_s: float) -> Found:
    found, until, size = Found(scanned_to=max(1, before), total=total), time.monotonic() + budget_s, 0
    for first, raw in _chunks_up(head, before):
        here = matches(matcher, first, logs.records_of(raw)) if matcher.may_hold(raw) else iter(())
        for hit in reversed([hit for hit in here if hit.line < before]):
            found.hits.insert(0, hit)
            size += len(hit.record)
            if len(found.hits) >= n or size >= MOST_BYTES:
                return _gone_up(found, hit.line)
        found.scanned_to = min(found.scanned_to, first)
        if time.monotonic() > until:
            return _gone_up(found, found.scanned_to)
    return _gone_up(found, 1)


def _gone_up(found: Found, to: int) -> Found:
    found.scanned_to, found.count, found.complete = to, len(found.hits), to <= 1
    return found


def _chunks_down(head: logs.Head, after: int, total: int) -> Iterator[tuple[int, int, bytes]]:
    """(first line, last line, raw records) from the one that holds the line behind `after` on."""
    rows = head.chunks.filter(first__lte=total).order_by("first")
    start = rows.filter(first__lte=after + 1).order_by("-first").values_list("first", flat=True).first()
    found = rows.filter(first__gte=start) if start is not None else rows
    for first, n, data in found.values_list("first", "n", "data").iterator(chunk_size=READ):
        yield first, first + n - 1, logs.unpacked(data)


def _chunks_up(head: logs.Head, before: int) -> Iterator[tuple[int, bytes]]:
    rows = head.chunks.filter(first__lt=before).order_by("-first")
    for first, data in rows.values_list("first", "data").iterator(chunk_size=READ):
        yield first, logs.unpacked(data)


def first_error(head: logs.Head, after: int = 0) -> Found:
    """The first line behind `after` that tells of an error, if any within a second of work."""
    return search(head, Query(level="error"), after=after, n=1, stop=True)


@dataclass
class Facets:
    """How many lines of each level there are, and which processes wrote, behind `after` up to `scanned_to`."""

    levels: Counter[str] = field(default_factory=Counter)
    ranks: set[str] = field(default_factory=set)
    scanned_to: int = 0
    total: int = 0

    @property
    def complete(self) -> bool:
        return self.scanned_to >= self.total


MOST_RANKS = 200


def facets(head: logs.Head, after: int = 0, budget_s: float = BUDGET_S) -> Facets:
    """Counts of a part of the log; whoever wants the whole adds them up."""
    total, until = head.next_line - 1, time.monotonic() + budget_s
    found = Facets(scanned_to=after, total=total)
    for first, last, raw in _chunks_down(head, after, total):
        for place, record in enumerate(logs.records_of(raw)):
            if after < first + place <= total:
                _count(found, record)
        found.scanned_to = max(found.scanned_to, min(last, total))
        if time.monotonic() > until:
            return found
    found.scanned_to = max(after, total)
    return found


def _count(found: Facets, record: bytes) -> None:
    kind, parted, text = record.partition(b"\t")[2].partition(b"\t")
    if not parted:
        kind, text = b"o", record
    if kind == b"p":
        return
    shown = ESCAPES.sub(b"", text) if b"\x1b" in text else text
    if level := log_levels.of(kind.decode("ascii", "replace"), shown):
        found.levels[level] += 1
    if len(found.ranks) < MOST_RANKS and (process := log_levels.process_of(shown)):
        found.ranks.add(process)


def in_order(ranks: set[str]) -> list[str]:
    """Numbers by their size, then names, digits in them by their size."""

    def key(name: str) -> list[tuple[int, int, str]]:
        return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"\d+|\D+", name)]

    return sorted(ranks, key=key)
