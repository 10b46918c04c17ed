"""Writes the lines of an attempt: one record each, in order, without loss, and honest about what a full disk cost."""

import errno
import os
import re
import time
from pathlib import Path
from typing import Any

from deployments.agent.masks import Masks
from deployments.agent.spool import MAX_TEXT, event, record

# Everything that is not text, but \t and ESC (colours): it would move the cursor of who reads the log raw,
# and several of these are line ends to Python and to browsers.
CONTROL = re.compile("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u2028\u2029]")
PICTURES = {code: 0x2400 + code for code in range(32) if code not in (9, 10, 27)}
PICTURES |= {0x7F: 0x2421, **dict.fromkeys(range(128, 160), 65533), 0x2028: 0x21B5, 0x2029: 0xB6}

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FLUSH_BYTES = 64 * 1024
FLUSH_S = 0.05
RETRY_S = 0.5


def clean(text: str) -> str:
    """`text` with control characters as visible ones; tab, ESC and line ends stay."""
    return text.translate(PICTURES) if CONTROL.search(text) else text


def pieces(data: bytes) -> list[bytes]:
    """UTF-8 cut into parts of at most MAX_TEXT bytes, never inside a character."""
    found = []
    while len(data) > MAX_TEXT:
        end = MAX_TEXT
        while data[end] & 0xC0 == 0x80:
            end -= 1
        found.append(data[:end])
        data = data[end:]
    return [*found, data]


class SpoolWriter:
    """Appends records; `flush` at once after a pause, else when 50 ms have passed or 64 KB wait.

    While the disk is full, lines are counted and dropped, events are kept in memory, and both are
    written, the count as a gap record, as soon as there is room.
    """

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.waiting: list[bytes] = []
        self.waiting_bytes = 0
        self.flushed_at = 0.0
        self.held: list[bytes | int] = []  # while the disk is full: events, and numbers of lost lines between them
        self.retry_at = 0.0
        self.last_owner = ""
        self.masks = Masks()

    def event(self, name: str, **fields: Any) -> None:
        """An event record, on disk (or held for it) when this returns."""
        self.events(event(name, **fields))

    def events(self, *texts: str) -> None:
        """Several event records in one write: all of them are there, or none."""
        self._add(b"".join(record("v", self.masks.in_json(text)) for text in texts), "v")
        self.flush()

    def sync(self) -> bool:
        """Whether all that was written is on the disk now, also after a power cut."""
        self.flush()
        if self.held:
            return False
        os.fsync(self.descriptor)
        return True

    def say(self, text: str) -> None:
        """The console's own words, one line."""
        self.line("s", clean(text).replace("\n", " ").encode())

    def line(self, kind: str, text: bytes) -> None:
        """One clean line, in pieces where it is longer than a record may be."""
        first, *rest = pieces(self.masks.masked(text))
        stamp = b"%d\t" % int(time.time() * 1000)
        self._add(b"%s%s\t%s\n" % (stamp, kind.encode(), first), kind)
        for piece in rest:
            self._add(b"%s+\t%s\n" % (stamp, piece), kind)

    def more(self, kind: str, text: bytes) -> None:
        """The next part of a line already begun: `+` where it stands right before, else a line of its own."""
        if self.last_owner != kind:
            return self.line(kind, text)
        for piece in pieces(self.masks.masked(text)):
            self._add(b"%d\t+\t%s\n" % (int(time.time() * 1000), piece), kind)
        return None

    def block(self, kind: str, text: bytes) -> None:
        """Many clean lines at once, each ended by a line end and no longer than a record: the fast way."""
        head = b"%d\t%s\t" % (int(time.time() * 1000), kind.encode())
        self._add(head + self.masks.masked(text[:-1]).replace(b"\n", b"\n" + head) + b"\n", kind)

    def _add(self, data: bytes, owner: str) -> None:
        self.waiting.append(data)
        self.waiting_bytes += len(data)
        self.last_owner = owner
        if self.waiting_bytes >= FLUSH_BYTES:
            self.flush()

    def due_in(self) -> float | None:
        """Seconds until `flush` is due, None when nothing waits."""
        now = time.monotonic()
        if self.held:
            return max(0.0, self.retry_at - now)
        return max(0.0, self.flushed_at + FLUSH_S - now) if self.waiting else None

    def flush(self) -> None:
        """Write what waits."""
        data = b"".join(self.waiting)
        self.waiting.clear()
        self.waiting_bytes = 0
        self.flushed_at = time.monotonic()
        if self.held:
            self._hold(data)
            self._retry()
        elif data:
            self._hold(self._write(data))

    def _write(self, data: bytes) -> bytes:
        """Append whole records; returns those for which there was no room. A part of one is taken back."""
        view = memoryview(data)
        done = 0
        while done < len(data):
            try:
                done += os.write(self.descriptor, view[done:])
            except OSError as error:
                if error.errno not in FULL:
                    raise
                whole = data.rfind(b"\n", 0, done) + 1
                if done > whole:
                    os.ftruncate(self.descriptor, os.fstat(self.descriptor).st_size - (done - whole))
                return data[whole:]
        return b""

    def _hold(self, data: bytes) -> None:
        if not data:
            return
        if not self.held:
            self.retry_at = time.monotonic() + RETRY_S
        for line in data.split(b"\n")[:-1]:
            if line.split(b"\t", 2)[1] == b"v":
                self.held.append(line + b"\n")
            elif self.held and isinstance(self.held[-1], int):
                self.held[-1] += 1
            else:
                self.held.append(1)

    def _retry(self) -> None:
        if time.monotonic() < self.retry_at:
            return
        while self.held:
            first = self.held[0]
            data = record("g", str(first)) if isinstance(first, int) else first
            if self._write(data):
                self.retry_at = time.monotonic() + RETRY_S
                return
            self.held.pop(0)
        self.last_owner = ""

    def close(self) -> None:
        """Write everything; waits, as long as it takes, for room on a full disk: the end must be told."""
        self.flush()
        while self.held:
            time.sleep(RETRY_S)
            self._retry()
        os.close(self.descriptor)
