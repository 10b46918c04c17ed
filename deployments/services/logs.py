"""Read the log of an attempt or of an engine: ranges of raw spool records, and the whole as plain text.

A record is `<epoch_ms>\\t<kind>\\t<text>`; its place in the stream, from 1, is its line number. The kinds are those of
deployments/agent/spool.py: o e s text, p progress being redrawn, + goes on, g gap, v event (JSON).
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from deployments.chunks import LAST_MS
from deployments.models import AgentLog, Attempt, EngineLog

Head = Attempt | EngineLog | AgentLog  # the row of a log: `next_line`, and its `chunks`

MAX_LINES = 2000
MAX_HELD = 1024 * 1024  # characters of a line that goes on and on
MAX_BYTES = 1024 * 1024  # of one answer; a record may hold 32 KB, so 2,000 of them would be 64 MB


@dataclass(frozen=True)
class Lines:
    """Records `first` … `first + n - 1` of a log that holds `total`, joined by newlines."""

    first: int
    n: int
    total: int
    text: str


def after(head: Head, line: int, n: int = MAX_LINES) -> Lines:
    """At most `n` records that follow `line`; fewer where they are long. Ask again from the last one."""
    total = head.next_line - 1
    first = max(1, line + 1)
    last = min(total, first + min(n, MAX_LINES) - 1)
    records: list[bytes] = []
    size = 0
    for record in _records(head, first, last):
        size += len(record) + 1
        if records and size > MAX_BYTES:
            break
        records.append(record)
    return _lines(first, records, total)


def before(head: Head, line: int, n: int = MAX_LINES) -> Lines:
    """At most `n` records right before `line`; fewer where they are long."""
    total = head.next_line - 1
    last = min(total, line - 1)
    first = max(1, last - min(n, MAX_LINES) + 1)
    records = list(_records(head, first, last))
    size = kept = 0
    for record in reversed(records):
        size += len(record) + 1
        if kept and size > MAX_BYTES:
            break
        kept += 1
    return _lines(last - kept + 1 if kept else first, records[len(records) - kept :], total)


def tail(head: Head, n: int = 500) -> Lines:
    """The last `n` records."""
    return before(head, head.next_line, n)


def asked(head: Head, after_line: int | None, before_line: int | None, n: int) -> Lines:
    """Behind a line, before one, or the last."""
    if after_line is not None:
        return after(head, after_line, n)
    return before(head, before_line, n) if before_line is not None else tail(head, n)


def _lines(first: int, records: list[bytes], total: int) -> Lines:
    return Lines(first, len(records), total, b"\n".join(records).decode("utf-8", "replace"))


def _records(head: Head, first: int, last: int) -> Iterator[bytes]:
    """Records `first` … `last`. Two indexed queries, whatever the length of the log."""
    if last < first:
        return
    chunks = head.chunks.filter(first__lte=last).order_by("first")
    start = chunks.filter(first__lte=first).order_by("-first").values_list("first", flat=True).first()
    found = chunks.filter(first__gte=start) if start is not None else chunks
    for chunk_first, data in found.values_list("first", "data").iterator(chunk_size=16):
        for number, record in enumerate(unpack(data), start=chunk_first):
            if number > last:
                return
            if number >= first:
                yield record


def unpack(data: bytes | memoryview) -> list[bytes]:
    """The records of one stored chunk."""
    return records_of(unpacked(data))


def unpacked(data: bytes | memoryview) -> bytes:
    """The records of one stored chunk as one text."""
    return zlib.decompress(bytes(data))


def records_of(raw: bytes) -> list[bytes]:
    return raw.removesuffix(b"\n").split(b"\n") if raw else []


def stored(head: Head, until: int | None = None) -> Iterator[tuple[int, list[bytes]]]:
    """(first line, records) of each stored chunk up to line `until`, a few at a time: a whole log in bounded memory."""
    line = 0
    while (until is None or line < until) and (found := _next_chunks(head, line)):
        for first, records in found:
            yield first, records if until is None else records[: max(0, until - first + 1)]
            line = max(first, first + len(records) - 1)


def _next_chunks(head: Head, line: int, count: int = 8) -> list[tuple[int, list[bytes]]]:
    rows = head.chunks.filter(first__gt=line).order_by("first").values_list("first", "data")
    return [(first, unpack(data)) for first, data in rows[:count]]


def whole(head: Head, until: int | None = None) -> Iterator[bytes]:
    """The log up to line `until` as plain text, UTF-8, in bounded memory; no part of it is empty."""
    writer = PlainText()
    for _first, records in stored(head, until):
        if text := "".join(writer.feed(records)):
            yield text.encode("utf-8", "replace")
    if text := "".join(writer.flush()):
        yield text.encode("utf-8", "replace")


def plain_text(found: Lines) -> str:
    """These lines as text; '' for none."""
    writer = PlainText()
    records = found.text.encode().split(b"\n") if found.n else []
    return "".join([*writer.feed(records), *writer.flush()])


class PlainText:
    """Turns records into the lines of a text file: ISO time, tab, text; progress as its last state, cut lines joined.

    Feed records in order; `flush` at the end. A line may be as long as a disk: what is held of it is MAX_HELD.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._held = 0
        self._is_open = False  # some of the line was given, its end was not
        self._is_progress = False

    def feed(self, records: Iterable[bytes]) -> Iterator[str]:
        for record in records:
            stamp, kind, text = split(record)
            if kind == "+":
                self._hold(text)
                if self._held > MAX_HELD:
                    yield "".join(self._parts)
                    self._parts, self._held, self._is_open = [], 0, True
                continue
            # A progress line is replaced by what is written next on the same line: the next p, or its final text.
            if self._is_progress and kind in "poe" and not self._is_open:
                self._parts = []
            yield from self.flush()
            self._hold(f"{iso(stamp)}\t{_words(kind, text)}")
            self._is_progress = kind == "p"

    def flush(self) -> Iterator[str]:
        if self._parts or self._is_open:
            yield "".join(self._parts) + "\n"
        self._parts, self._held, self._is_open, self._is_progress = [], 0, False, False

    def _hold(self, text: str) -> None:
        self._parts.append(text)
        self._held += len(text)


def split(record: bytes) -> tuple[int, str, str]:
    """(epoch ms, kind, text) of one record; a record without that shape is shown whole as text."""
    whole = record.decode("utf-8", "replace")
    stamp, _, rest = whole.partition("\t")
    kind, found, text = rest.partition("\t")
    if found and stamp.isdecimal() and len(stamp) < 16:
        return min(int(stamp), LAST_MS), kind, text
    return 0, "o", whole


def iso(ms: int) -> str:
    if not ms:
        return "-"
    return datetime.fromtimestamp(ms / 1000, tz=timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _words(kind: str, text: str) -> str:
    if kind == "g":
        return f"[console] {text} lines were lost here"
    if kind == "v":
        # JSON may hold line ends, which would let one record look like several lines of others.
        return "[console] " + "\\n".join(_event_words(text).splitlines())
    return f"[console] {text}" if kind == "s" else text


def _event_words(text: str) -> str:
    """One event in English: the raw text is read by tools and in tickets. Unknown events are shown as they are."""
    try:
        event: dict[str, Any] = json.loads(text)
        name = event["e"]
        if name == "started" and "replica" in event:
            return f"engine started, pid {event['pid']}: {' '.join(map(str, event['argv']))}"
        if name == "engine":
            return f"engine {event['state']}" + (f", {event['reason'][1]}" if event.get("reason") else "")
        if name == "started":
            return f"started on {event['host']}, runner {event['pid']}"
        if name == "cancelling":
            return f"cancelling: {event['rung']}"
        if name == "waiting_reboot":
            who = "waits until somebody restarts the server" if event["by_hand"] else "waits for the server to restart"
            return f"{who}, boot id {event['boot_id']}, at most {event['within_s']} s"
        if name == "rebooted":
            return f"The server has restarted, boot id {event['boot_id']}, after {event['took_s']} s; the job goes on"
        if name == "step":
            return f"step {event['n']}/{event['of']}: {event['title'][1]} $ {' '.join(map(str, event['argv']))}"
        if name == "step_end":
            return f"step {event['n']} {event['state']}, exit code {event['exit']}, {event['took_s']} s"
        if name == "item":
            return f"{event['verdict']}: {event['title'][1]}: {event['found']} (wanted {event['wanted']})"
        if name == "ended":
            return f"ended: {event['state']}" + (f", {event['reason'][1]}" if event.get("reason") else "")
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return text
    return text
