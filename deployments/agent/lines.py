"""Makes lines of what a program prints: any bytes in, records out.

A carriage return redraws a line: what stands before it is progress, kept at most twice a second as a `p`
record; the text that the line ends with is the `o` record. A line that is not ended yet, a question for
instance, is shown as progress too.
"""

import re
import time

from deployments.agent.spool import MAX_TEXT
from deployments.agent.writer import CONTROL, PICTURES, SpoolWriter

MAX_PENDING = 1024 * 1024
MAX_PROGRESS = 2000
PROGRESS_S = 0.5
LONG = re.compile(rb"[^\n]{%d}" % (MAX_TEXT + 1))


class LineMaker:
    """Lines of one stream; `kind` is `o` or `e`. `feed` bytes as they come, `tick` when `due_in` has passed."""

    def __init__(self, writer: SpoolWriter, kind: str) -> None:
        self.writer = writer
        self.kind = kind
        self.rest = b""
        self.begun = 0.0  # when the unfinished line began, or was last shown
        self.shown = b""
        self.continues = False  # the line's first part is written already

    def feed(self, data: bytes) -> None:
        end = data.rfind(b"\n") + 1
        if end:
            self._lines(self.rest + data[:end])
            self.rest, self.shown = b"", b""
            data = data[end:]
        if not data:
            return
        if not self.rest:
            self.begun = time.monotonic()
        self.rest += data
        if b"\r" in data and not self.continues:
            self.rest = self.rest[self.rest.rstrip(b"\r").rfind(b"\r") + 1 :]
        if len(self.rest) > MAX_PENDING:
            self._overflow()

    def due_in(self) -> float | None:
        """Seconds until the unfinished line should be shown, None when it is shown or there is none."""
        if not self.rest or self.continues or self._newest() == self.shown:
            return None
        return max(0.0, self.begun + PROGRESS_S - time.monotonic())

    def tick(self) -> None:
        if self.due_in() == 0.0:
            self.begun = time.monotonic()
            self.shown = self._newest()
            self.writer.line("p", _text(self.shown[:MAX_PROGRESS]))

    def close(self) -> None:
        """The stream has ended; what stands without a line end is a line as well."""
        if self.rest.strip(b"\r") or self.continues:
            self._lines(self.rest + b"\n")
        self.rest = b""

    def _newest(self) -> bytes:
        return self.rest.rstrip(b"\r").rpartition(b"\r")[2]

    def _lines(self, block: bytes) -> None:
        if self.continues:
            first, _, block = block.partition(b"\n")
            self.continues = False
            self.writer.more(self.kind, _text(_final(first)))
        if not block:
            return
        if b"\r" in block:
            block = b"\n".join(_final(line) for line in block.split(b"\n"))
        block = _text(block)
        if LONG.search(block):
            for line in block[:-1].split(b"\n"):
                self.writer.line(self.kind, line)
        else:
            self.writer.block(self.kind, block)

    def _overflow(self) -> None:
        """A line that does not end: write what there is, but not half a character, and go on after it."""
        end = len(self.rest) - 1
        while end > len(self.rest) - 4 and self.rest[end] & 0xC0 == 0x80:
            end -= 1
        text = _text(self.rest[:end].replace(b"\r", b"\n").replace(b"\n", b" "))
        if self.continues:
            self.writer.more(self.kind, text)
        else:
            self.writer.line(self.kind, text)
        self.rest = self.rest[end:]
        self.continues = True


def _final(line: bytes) -> bytes:
    """What a terminal shows of the line in the end."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _text(data: bytes) -> bytes:
    """Clean UTF-8: bytes that are none become U+FFFD, control characters visible ones."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
        return text.translate(PICTURES).encode()
    return text.translate(PICTURES).encode() if CONTROL.search(text) else data
