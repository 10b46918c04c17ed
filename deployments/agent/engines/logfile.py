"""From what an engine prints to its log on the disk.

The engine prints into a FIFO, whose bytes the kernel moves into engine.log (splice): a keeper that is killed has
neither lost them nor written them twice.
"""

import contextlib
import fcntl
import os
import re
import time
from pathlib import Path

from deployments.agent.writer import FULL

MAX_FILE = 10 * 1024 * 1024
KEPT_FILES = 5  # engine.log and four older ones
PIPE_BYTES = 1024 * 1024  # what an engine may print while nobody keeps it
AT_ONCE = 256 * 1024
RETRY_S = 0.5
LONGEST_TAIL = 64 * 1024
COUNT_BYTES = 20
LOST = re.compile(rb"-- (\d{1,18}) lines of output were lost here: there was no room --")
SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ


class Capture:
    """The FIFO and engine.log. `take` moves what there is; where there is no room it is dropped, and counted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "engine.log"
        self.next_path = folder / "engine.log.new"
        self.fifo: int | None = None
        self.retry_at = 0.0
        self._open_log()
        self.lost = self._open_count()  # lines

    def _open_log(self) -> None:
        if not self.path.exists() and self.next_path.exists():  # a keeper was killed while it turned them over
            self.next_path.replace(self.path)
        self.log = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self.log).st_size

    def _open_count(self) -> int:
        """How many lines a keeper has lost that was killed before there was room to say so.

        Its file has its length from the start, so that a full disk does not hinder counting.
        """
        self.count: int | None = None
        with contextlib.suppress(OSError, ValueError):
            self.count = os.open(self.folder / "lost", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            return int(os.pread(self.count, COUNT_BYTES, 0) or b"0")
        return 0

    def _note_lost(self, lines: int) -> None:
        self.lost = lines
        if self.count is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self.count, str(lines).encode().ljust(COUNT_BYTES), 0)

    def make(self) -> int:
        """A FIFO for an engine that starts; returns the descriptor that it prints into.

        It is open for reading there as well, so that an engine whose keeper is gone gets no SIGPIPE.
        """
        self.drop()
        self._note_lost(self.lost)
        path = self.folder / "output"
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        self.open()
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def open(self) -> bool:
        """Whether the FIFO of an engine that runs is there."""
        try:
            self.fifo = os.open(self.folder / "output", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.fifo, SET_PIPE_SIZE, PIPE_BYTES)
        return True

    def drop(self) -> None:
        if self.fifo is not None:
            os.close(self.fifo)
            self.fifo = None

    def take(self, *, has_room: bool = True) -> tuple[int, bytes]:
        """Move at most AT_ONCE bytes: how many came, and those that found no room."""
        if self.fifo is None:
            return 0, b""
        if not has_room:
            return self._lose()
        if self.lost and (time.monotonic() < self.retry_at or not self._mark()):
            return self._lose()
        try:
            moved = self._move()
        except OSError as error:
            if error.errno not in FULL:
                raise
            return self._lose()
        self.size += moved
        return moved, b""

    def _move(self) -> int:
        assert self.fifo is not None
        try:
            return os.splice(self.fifo, self.log, AT_ONCE, offset_dst=self.size, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            return 0

    def _lose(self) -> tuple[int, bytes]:
        assert self.fifo is not None
        try:
            data = os.read(self.fifo, AT_ONCE)
        except BlockingIOError:
            return 0, b""
        if not self.lost:
            self.retry_at = time.monotonic() + RETRY_S
        # The first one is that which was cut in the middle, maybe.
        self._note_lost((self.lost or 1) + data.count(b"\n"))
        return len(data), data

    def _mark(self) -> bool:
        """Leave in the log how many lines are missing; whether there is room for that."""
        last = os.pread(self.log, 1, self.size - 1) if self.size else b"\n"
        mark = b"" if last == b"\n" else b"\n"
        mark += b"-- %d lines of output were lost here: there was no room --\n" % self.lost
        try:
            if os.pwrite(self.log, mark, self.size) != len(mark):
                raise OSError(FULL[0], "no room")
        except OSError as error:
            if error.errno not in FULL:
                raise
            os.ftruncate(self.log, self.size)
            self.retry_at = time.monotonic() + RETRY_S
            return False
        self.size += len(mark)
        self._note_lost(0)
        return True

    def settle(self) -> None:
        """The engine has ended: say what is missing, if it can be said."""
        if self.lost:
            self._mark()

    @property
    def is_full(self) -> bool:
        return self.size >= MAX_FILE

    def tail(self) -> bytes:
        """The line at the end that is not ended yet, if it is not longer than LONGEST_TAIL."""
        last = os.pread(self.log, LONGEST_TAIL, max(0, self.size - LONGEST_TAIL))
        return last[last.rfind(b"\n") + 1 :] if b"\n" in last else b""

    def make_next(self, tail: bytes) -> int:
        """The engine.log that will follow; it begins with `tail`. Raises OSError where there is no room."""
        made = os.open(self.next_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        if os.pwrite(made, tail, 0) != len(tail):
            os.close(made)
            raise OSError(FULL[0], os.strerror(FULL[0]))
        return made

    def turn_over(self, made: int, tail: bytes) -> None:
        """engine.log becomes engine.log.1, and the oldest goes."""
        for n in range(KEPT_FILES - 1, 0, -1):
            older = self.path if n == 1 else self.path.with_name(f"engine.log.{n - 1}")
            if older.exists():
                older.replace(self.path.with_name(f"engine.log.{n}"))
        self.next_path.replace(self.path)
        os.close(self.log)
        self.log, self.size = made, len(tail)

    def close(self) -> None:
        self.drop()
        os.close(self.log)
