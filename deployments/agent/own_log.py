"""The agent's own lines as a log for the console: pieces `g<n>` beside those of engines, shipped as they are.

A part that fails over and over must cost neither the disk nor the line to the console: what repeats is counted, what
is more than a person reads is left out and said, and of what waits only the newest pieces stay. So nothing that the
shipper itself says can feed it without end.
"""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from deployments.agent import spool
from deployments.agent.masks import Masks
from deployments.agent.writer import SpoolWriter, clean

MAX_PIECE = 8 * 1024 * 1024
KEPT_PIECES = 3  # that the console does not have yet
MOST_A_MINUTE = 600  # lines
EPOCH = 1_735_689_600  # 2025-01-01: numbers are seconds since, so that an agent that joins anew repeats none
MINE = re.compile(r"g\d{1,9}")


class OwnPiece(SpoolWriter):
    def lost(self, lines: int) -> None:
        self._add(spool.record("g", str(lines)), "g")

    def end(self) -> None:
        """End it, without waiting for room: its next start does it otherwise."""
        self.event("ended", state="succeeded", exit=None)
        os.close(self.descriptor)


class OwnLog:
    """`take` lines of one of the agent's programs. Raises OSError where there is no place for them."""

    def __init__(self, logs: Path, masks: Masks | None = None, max_bytes: int = MAX_PIECE) -> None:
        self.logs = logs
        self.masks = masks or Masks()
        self.max_bytes = max_bytes
        self.writer: OwnPiece | None = None
        self.written = 0
        self.last, self.repeated = "", 0
        self.minute, self.taken, self.left_out = 0, 0, 0

    def take(self, name: str, lines: Sequence[bytes]) -> None:
        for line in lines:
            text = f"{name}: {clean(line.decode('utf-8', 'replace'))}"
            if text == self.last:
                self.repeated += 1
                continue
            self._tell_repeated()
            self.last = text
            self._line(text)
        if self.writer is not None:
            self.writer.flush()

    def _tell_repeated(self) -> None:
        if self.repeated:
            count, self.repeated = self.repeated, 0
            self._line(f"… the same {count} times more")

    def _line(self, text: str) -> None:
        minute = int(time.monotonic() // 60)
        if minute != self.minute:
            self.minute, self.taken = minute, 0
        self.taken += 1
        if self.taken > MOST_A_MINUTE:
            self.left_out += 1
            return
        writer = self._piece()
        if self.left_out:
            writer.lost(self.left_out)
            self.left_out = 0
        data = text.encode("utf-8", "replace")
        writer.line("o", data)
        self.written += len(data) + 20

    def _piece(self) -> OwnPiece:
        if self.writer is not None and self.written >= self.max_bytes:
            self.writer.end()
            self.writer = None
        if self.writer is None:
            self._end_older()
            self.writer = self._begin()
            self.written = 0
        return self.writer

    def _begin(self) -> OwnPiece:
        newest = max((int(path.name[1:]) for path in self._mine()), default=0)
        folder = self.logs / f"g{max(newest + 1, int(time.time()) - EPOCH)}"
        folder.mkdir(parents=True, mode=0o700)
        writer = OwnPiece(folder / "lines")
        writer.masks = self.masks
        writer.event("started", host=os.uname().nodename, pid=os.getpid())
        return writer

    def _mine(self) -> list[Path]:
        return spool.folders(self.logs, MINE)

    def _end_older(self) -> None:
        """Those of an agent that was killed; and of those that wait, the oldest go."""
        waiting = [path for path in self._mine() if not (path / "shipped").exists()]
        waiting.sort(key=lambda path: int(path.name[1:]))
        for path in waiting[: -(KEPT_PIECES - 1)]:
            shutil.rmtree(path, ignore_errors=True)
        for path in waiting[-(KEPT_PIECES - 1) :]:
            with contextlib.suppress(OSError):
                if not spool.has_ended(path):
                    spool.mend_tail(path / "lines")
                    OwnPiece(path / "lines").end()

    def close(self) -> None:
        """The agent stops."""
        with contextlib.suppress(OSError):
            if self.writer is not None:
                self._tell_repeated()
                self.writer.end()
                self.writer = None
