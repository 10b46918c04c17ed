"""From what an engine prints to its log on the disk, and from there to the pieces that the console gets.

The engine prints into a FIFO, whose bytes the kernel moves into engine.log (splice): a keeper that is killed has
neither lost them nor written them twice. Pieces are made from engine.log; how far they have come is counted in them.
"""

import contextlib
import fcntl
import os
import re
import time
from pathlib import Path
from typing import Any

from deployments.agent import spool
from deployments.agent.engines.folder import Folder, pieces
from deployments.agent.lines import LineMaker
from deployments.agent.writer import FULL, SpoolWriter

MAX_FILE = 10 * 1024 * 1024
KEPT_FILES = 5  # engine.log and four older ones
PIPE_BYTES = 1024 * 1024  # what an engine may print while nobody keeps it
AT_ONCE = 256 * 1024
RETRY_S = 0.5
MOST_EARLY = 100
LONGEST_TAIL = 64 * 1024
MOST_UNSHIPPED = 256 * 1024 * 1024  # of one engine: a console that is away must not cost the server's disk
LOST = re.compile(rb"-- (\d{1,18}) lines of output were lost here: there was no room --")
SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ


class Capture:
    """The FIFO and engine.log. `take` moves what there is; where there is no room it is dropped, and counted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "engine.log"
        self.next_path = folder / "engine.log.new"
        self.fifo: int | None = None
        self.lost = 0  # lines
        self.retry_at = 0.0
        self._open_log()

    def _open_log(self) -> None:
        self.log = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self.log).st_size

    def make(self) -> int:
        """A FIFO for an engine that starts; returns the descriptor that it prints into.

        It is open for reading there as well, so that an engine whose keeper is gone gets no SIGPIPE.
        """
        self.drop()
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
            self.lost = 1  # the line that was cut in the middle, maybe
        self.lost += data.count(b"\n")
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
        self.lost = 0
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


class PieceWriter(SpoolWriter):
    """Records in which the engine's key stands nowhere."""

    def __init__(self, path: Path, key: str) -> None:
        super().__init__(path)
        self.key = key.encode() if len(key) >= 8 else b""

    def _add(self, data: bytes, owner: str) -> None:
        super()._add(data.replace(self.key, b"***") if self.key else data, owner)

    def lost(self, lines: int) -> None:
        self._add(spool.record("g", str(lines)), "g")

    def is_over(self) -> bool:
        """Whether everything is written, and the file closed. Never waits for room: the engine goes on."""
        self.flush()
        if self.held:
            return False
        os.close(self.descriptor)
        return True


class Pieces:
    """Makes records of engine.log, from `done` on. One piece is open at a time, or none."""

    def __init__(self, folder: Folder, capture: Capture, key: str) -> None:
        self.folder = folder
        self.capture = capture
        self.key = key
        self.writer: PieceWriter | None = None
        self.lines: LineMaker | None = None
        self.n = 0
        self.done = capture.size  # bytes of engine.log
        self.skipped = 0  # lines that are not written, as too many wait for the console
        self.is_crowded = False
        self.counted_at = 0.0
        self.early: list[tuple[str, dict[str, Any]]] = []  # events of a piece that had no room to begin
        self.ending: list[PieceWriter] = []  # that wait for room
        self.next_begin: float | None = None

    def begin(self, start: int | None = None) -> None:
        """A new piece, whose first line begins at that byte of engine.log: at its end where none is given."""
        self.done = self.capture.size if start is None else start
        self.next_begin = time.monotonic()
        self._try_to_begin()

    def _try_to_begin(self) -> None:
        """Without room now, again later: what the engine prints waits in engine.log."""
        if self.next_begin is None or time.monotonic() < self.next_begin:
            return
        self.n = self.folder.newest_piece() + 1
        try:
            self.folder.note_piece(self.n, self.done)
            self._open()
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.next_begin = time.monotonic() + RETRY_S
            return
        self.next_begin = None
        for name, fields in self.early:
            self.event(name, **fields)
        self.early.clear()

    def mend(self) -> None:
        """End the older pieces of a keeper that was killed before it could."""
        for path in pieces(self.folder.logs):
            mine = path.name.startswith(f"{self.folder.name}-") and path != self.folder.piece_folder(self.n)
            if mine and not (path / "shipped").exists() and not spool.has_ended(path):
                cut(path / "lines")
                writer = PieceWriter(path / "lines", self.key)
                writer.event("ended", state="succeeded", exit=None, reason=None, more=True)
                self.ending.append(writer)

    def _open(self) -> None:
        path = self.folder.piece_folder(self.n)
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.writer = PieceWriter(path / "lines", self.key)
        self.lines = LineMaker(self.writer, "o")

    def go_on(self) -> bool:
        """Take up the newest piece of a keeper that is gone; False where it was ended, or there is none."""
        kept = self.folder.piece
        if kept is None or kept[0] != self.folder.newest_piece():
            return False
        self.n, start = kept
        path = self.folder.piece_folder(self.n)
        if (path / "shipped").exists() or spool.has_ended(path):
            return False
        cut(path / "lines")
        self.done = position(path / "lines", self.capture.log, start, self.capture.size)
        self._open()
        return True

    def work(self) -> bytes:
        """Make records of at most AT_ONCE more bytes; returns those."""
        if self.lines is None or self.done >= self.capture.size:
            return b""
        data = os.pread(self.capture.log, AT_ONCE, self.done)
        self.done += len(data)
        if LOST.search(data):
            self._with_gaps(data)
        elif self._is_too_much():
            self.skipped += data.count(b"\n")
        else:
            self._tell_skipped()
            self.lines.feed(data)
        return data

    def _with_gaps(self, data: bytes) -> None:
        assert self.lines is not None and self.writer is not None
        for line in data.splitlines(keepends=True):
            if (found := LOST.fullmatch(line.rstrip(b"\n"))) and not self.lines.rest:
                self.writer.lost(int(found[1]))
            else:
                self.lines.feed(line)

    def _tell_skipped(self) -> None:
        if self.skipped and self.writer is not None:
            self.writer.lost(self.skipped)
            self.skipped = 0

    def _is_too_much(self) -> bool:
        """Whether so much waits for the console that lines are left out, between two lines only."""
        assert self.lines is not None
        if time.monotonic() - self.counted_at > 2.0:
            self.counted_at = time.monotonic()
            own = [path for path in pieces(self.folder.logs) if path.name.startswith(f"{self.folder.name}-")]
            self.is_crowded = sum(_size(path / "lines") for path in own) > MOST_UNSHIPPED
        return self.is_crowded and not self.lines.rest and not self.lines.continues

    def event(self, name: str, **fields: Any) -> None:
        if self.writer is not None:
            self.writer.event(name, **fields)
        elif self.next_begin is not None and len(self.early) < MOST_EARLY:
            self.early.append((name, fields))

    def tick(self) -> None:
        self.ending = [writer for writer in self.ending if not writer.is_over()]
        self._try_to_begin()
        if self.lines is None or self.writer is None:
            return
        if self.lines.due_in() == 0.0:
            self.lines.tick()
        if self.writer.due_in() == 0.0:
            self.writer.flush()

    def due_in(self) -> float | None:
        found = [one.due_in() for one in (self.lines, self.writer, *self.ending) if one is not None]
        if self.next_begin is not None:
            found.append(max(0.0, self.next_begin - time.monotonic()))
        return min((one for one in found if one is not None), default=None)

    def end(self, state: str, code: int | None, reason: Any, *, more: bool) -> None:
        """Everything of engine.log is in the piece, which ends."""
        if self.lines is None or self.writer is None:
            self.next_begin = None
            return
        while self.done < self.capture.size:
            self.work()
        self._tell_skipped()
        self.lines.close()
        told = list(reason) if reason else None
        self.writer.event("ended", state=state, exit=code, reason=told, more=more)
        if not self.writer.is_over():
            self.ending.append(self.writer)
        self.writer = self.lines = None

    @property
    def is_behind(self) -> bool:
        """Whether there is more in engine.log than records were made of."""
        return self.done < self.capture.size

    def turn_over(self) -> bool:
        """Begin the next engine.log and the next piece; False where there is no room for them.

        A keeper that is killed in between leaves an ended piece: the next one begins with engine.log where that has
        been turned over, and else with its last line (`take_over`).
        """
        assert self.lines is not None
        tail = b"" if self.lines.continues else self.capture.tail()
        try:
            made = self.capture.make_next(tail)
        except OSError as error:
            if error.errno not in FULL:
                raise
            return False
        if tail:
            self.lines.rest = b""
        self.end("succeeded", None, None, more=True)
        self.capture.turn_over(made, tail)
        self.begin(0)
        return True

    def take_over(self) -> None:
        """The same for the engine of a keeper that was killed between the two."""
        self.begin(self.capture.size - len(self.capture.tail()) if self.capture.is_full else 0)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def cut(path: Path) -> None:
    """Let the file end with a whole record: engine.log still has the line whose record was cut."""
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        start = max(0, size - spool.MAX_TEXT - 64)
        file.seek(start)
        tail = file.read()
        whole = tail.rfind(b"\n") + 1
        if whole != len(tail):
            file.truncate(start + whole)


def position(path: Path, log: int, start: int, size: int) -> int:
    """The byte of engine.log behind the last line that stands in the piece.

    Each line of engine.log is one `o` record, its further parts `+`; a gap is one line that tells of it, or was so
    many lines.
    """
    data, at = os.pread(log, max(0, size - start), start), 0
    if not path.exists():  # there was no room to begin it
        return start
    with path.open("rb") as file:
        for record in file:
            kind, _, text = record.partition(b"\t")[2].partition(b"\t")
            if kind == b"o":
                at = _behind(data, at)
            elif kind == b"g" and text.strip().isdigit():
                told = LOST.match(data, at)
                for _ in range(1 if told and told[1] == text.strip() else int(text)):
                    at = _behind(data, at)
    return start + at


def _behind(data: bytes, at: int) -> int:
    """Behind the line that begins at `at`; the end where it is not ended."""
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end + 1
