"""Chunks of logs as servers send them, of attempts and of engines: untrusted, so sizes are bounded here."""

import json
import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

MAX_CHUNK_BYTES = 128 * 1024  # raw; agents send at most 64 kB
LAST_MS = 253_370_764_800_000  # the year 9999, which no time zone carries beyond what a date can say
ATTEMPT = re.compile(rb"[\w-]{1,40}", re.ASCII)
EVENT = b"\tv\t"


class Chunk(NamedTuple):
    """Lines `first` … `first + n - 1` of an attempt (or of a piece of an engine's log, which is called so, too), bytes
    `b0` … `b1` of its spool; `raw` is `data` unpacked."""

    attempt: str
    first: int
    n: int
    b0: int
    b1: int
    data: bytes
    raw: bytes

    @property
    def behind(self) -> list[int | bool]:
        """The place behind it, [next line, next byte, done]: for a stream that has no row, which its server forgets."""
        return [self.first + self.n, self.b1, b'"ended"' in self.raw]


class BadChunk(ValueError):
    """An entry that no agent of ours writes."""


def read_chunk(fields: dict[bytes, bytes]) -> Chunk:
    """The chunk of one stream entry. Raises BadChunk."""
    try:
        attempt = fields[b"a"]
        first, n, b0, b1 = (int(fields[name]) for name in (b"f", b"n", b"b0", b"b1"))
        data = fields[b"z"]
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(data, MAX_CHUNK_BYTES)
    except (KeyError, ValueError, zlib.error) as error:
        raise BadChunk(str(error)) from error
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise BadChunk("longer than 128 kB")
    if not ATTEMPT.fullmatch(attempt):
        raise BadChunk("names no attempt")
    if n < 1 or first < 1 or raw.count(b"\n") != n or not raw.endswith(b"\n") or b1 - b0 != len(raw):
        raise BadChunk("counts do not fit its bytes")
    return Chunk(attempt.decode(), first, n, b0, b1, data, raw)


def events(chunk: Chunk) -> Iterator[tuple[int, datetime, dict[str, Any]]]:
    """(line number, time, event) of every event line of a chunk, in order."""
    for offset, line in enumerate(chunk.raw.split(b"\n")[:-1]):
        parts = line.split(b"\t", 2)
        if len(parts) != 3 or parts[1] != b"v":
            continue
        try:
            at = datetime.fromtimestamp(min(max(0, int(parts[0])), LAST_MS) / 1000, UTC)
            event = json.loads(parts[2])
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield chunk.first + offset, at, event


def exit_code(value: Any) -> int | None:
    """Of an event; None for what no row could hold."""
    return value if type(value) is int and abs(value) < 2**31 else None
