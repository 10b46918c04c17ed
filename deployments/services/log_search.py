"""Search a log as it is stored, from a line on, for at most a second at a time: whoever asks goes on from `scanned_to`.

Chunks are unpacked and looked through as bytes; only where something may stand, their records are. What is looked at is
the text without colours; of progress that was redrawn its last state, of the console's own events their words.
"""

import re
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, islice
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
    """A query, prepared. Raises Invalid for an expression that cannot be used.

    `candidates` finds places in the texts of a whole chunk by the narrowest of what is asked for; `spans` judges one
    line by all of it.
    """

    def __init__(self, query: Query) -> None:
        self.level, self.rank, self.case = query.level, query.rank, query.case
        self.pattern = regexes.compiled(query.text, case=query.case, lines=True) if query.text and query.regex else None
        needle = query.text.encode("utf-8", "replace") if query.text and not query.regex else b""
        self.needle = needle if query.case else needle.lower()
        self.process = log_levels.words_of_process(query.rank) if query.rank else None
        self.is_empty = not (query.text or query.level or query.rank)

    def candidates(self, texts: bytes) -> Iterator[int]:
        if self.needle:
            return _places(texts if self.case else texts.lower(), self.needle)
        if self.pattern is not None:
            return (one.start() for one in self.pattern.finditer(texts))
        words = self.process if self.process is not None else log_levels.WORDS[self.level]
        return (one.start() for one in words.finditer(texts))

    def spans(self, kind: str, text: bytes, event: bytes) -> list[tuple[int, int]] | None:
        """Where it stands in the text; None where the line does not pass. `event`: its raw text."""
        if self.level and log_levels.of(kind, event if kind == "v" else text) != self.level:
            return None
        if self.rank and log_levels.process_of(text) != self.rank:
            return None
        if self.needle:
            looked = text if self.case else text.lower()
            found = [(at, at + len(self.needle)) for at in islice(_places(looked, self.needle), MOST_SPANS)]
        elif self.pattern is not None:
            found = [one.span() for one in islice(self.pattern.finditer(text), MOST_SPANS)]
        else:
            return []
        return found or None


def _places(texts: bytes, needle: bytes) -> Iterator[int]:
    at = texts.find(needle)
    while at >= 0:
        yield at
        at = texts.find(needle, at + len(needle))


SAID = ("title", "found", "wanted", "remedy", "reason", "host", "what", "rung", "state")  # fields of events with words


def _words(event: bytes) -> bytes:
    """What a reader sees of an event, in either language."""

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for one in value.values():
                yield from texts(one)
        elif isinstance(value, list):
            for one in value:
                yield from texts(one)

    said = log_levels.read_event(event)
    words = "  ".join(word for name in SAID for word in texts(said.get(name)))
    return " ".join(words.split("\n")).encode("utf-8", "replace")


def matches(matcher: Matcher, first: int, raw: bytes) -> Iterator[Hit]:
    """The hits among the records of one chunk, whose first line is `first`."""
    records = logs.records_of(raw)
    texts = [shown(record) for record in records]
    starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
    for place in _lines_of(matcher, b"\n".join(texts), starts, raw, records):
        record = records[place]
        kind = _kind(record)
        if kind == b"g" and not matcher.is_empty and not matcher.level:
            continue
        if kind == b"p" and place + 1 < len(records) and _kind(records[place + 1]) in b"poe":
            continue  # redrawn by what follows
        spans = matcher.spans(kind.decode("ascii", "replace"), texts[place], record[16:])
        if spans is not None:
            yield Hit(first + place, _ms(record), record, [] if kind == b"v" else _utf16(texts[place], spans))


def _lines_of(
    matcher: Matcher, joined: bytes, starts: list[int], raw: bytes, records: list[bytes]
) -> Iterator[int]:  # fmt: skip
    """Places of records that may pass, in order, each once."""
    if matcher.is_empty:
        yield from range(len(records))
        return
    found = {bisect_right(starts, offset) - 1 for offset in matcher.candidates(joined)}
    if matcher.level and not matcher.needle and matcher.pattern is None and (b"\tv\t" in raw or b"\tg\t" in raw):
        found |= {place for place, record in enumerate(records) if _kind(record) in b"vg"}
    yield from sorted(found)


def shown(record: bytes) -> bytes:
    """The text of a record without colours; of an event its words."""
    if record[13:14] == b"\t" and record[15:16] == b"\t":
        kind, text = record[14:15], record[16:]
    else:
        kind, parted, text = record.partition(b"\t")[2].partition(b"\t")
        text = text if parted else record
    if kind == b"v":
        return _words(text)
    return ESCAPES.sub(b"", text) if b"\x1b" in text else text


def _ms(record: bytes) -> int:
    stamp = record.partition(b"\t")[0]
    return int(stamp) if stamp.isdigit() and len(stamp) < 16 else 0


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
        for hit in matches(matcher, first, raw):
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
        for hit in reversed([hit for hit in matches(matcher, first, raw) if hit.line < before]):
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
        records = logs.records_of(raw)[max(0, after + 1 - first) : total + 1 - first]
        _count(found, records)
        found.scanned_to = max(found.scanned_to, min(last, total))
        if time.monotonic() > until:
            return found
    found.scanned_to = max(after, total)
    return found


PLAIN = frozenset((b"\to\t", b"\te\t", b"\ts\t"))  # behind a time of 13 digits: what programs print


def _count(found: Facets, records: list[bytes]) -> None:
    """The loudest of a line counts. Only lines with a word of errors or warnings are looked at alone."""
    printed = [
        record[16:] if record[13:16] in PLAIN and b"\x1b" not in record else _printed(record) for record in records
    ]
    texts = b"\n".join(printed)
    starts = list(accumulate([len(text) + 1 for text in printed], initial=0))
    louder: set[int] = set()
    for level in log_levels.LEVELS:
        words = log_levels.WHOLE.get(level) or (log_levels.WORDS[level],)
        places = (one.start() for each in words for one in each.finditer(texts))
        lines = {bisect_right(starts, place) - 1 for place in places} - louder
        if level not in log_levels.WHOLE:
            lines = {place for place in lines if log_levels.PATTERNS[level].search(printed[place])}
        found.levels[level] += len(lines)
        louder |= lines
    for record in records:
        if record[13:16] not in PLAIN and (kind := _kind(record)) in b"vg":
            found.levels[log_levels.of(kind.decode(), record[16:])] += 1
    found.levels = Counter({level: n for level, n in found.levels.items() if level and n})
    if len(found.ranks) < MOST_RANKS:
        found.ranks |= log_levels.processes_in(texts)


def _printed(record: bytes) -> bytes:
    """b"" for what no program printed, so that places stay."""
    return shown(record) if _kind(record) in b"oes" else b""


def in_order(ranks: set[str]) -> list[str]:
    """Numbers by their size, then names, digits in them by their size."""

    def key(name: str) -> list[tuple[int, int, str]]:
        return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"\d+|\D+", name)]

    return sorted(ranks, key=key)
