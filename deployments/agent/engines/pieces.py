"""From engine.log to the pieces that the console gets: each line a record, and how far that has come is counted in the
pieces themselves, so that a keeper that is killed loses no line and writes none twice."""

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Any

from deployments.agent import spool
from deployments.agent.engines.folder import Folder, pieces
from deployments.agent.engines.logfile import AT_ONCE, LOST, RETRY_S, Capture
from deployments.agent.lines import LineMaker
from deployments.agent.writer import FULL, SpoolWriter

MOST_EARLY = 100
MOST_UNSHIPPED = 256 * 1024 * 1024  # of one engine: a console that is away must not cost the server's disk
# What the keeper itself asks, every other second: it stands in engine.log, and is no news for the console. Only we ask
# with HTTP/1.0.
OWN = re.compile(
    rb'^(?:\([^)\n]{1,60}\) )?INFO: {5}[0-9a-f.:\[\]]{3,60} - "GET /(?:health|metrics) HTTP/1\.0"(?: 200 OK)?\n',
    re.MULTILINE,
)
MAY_BE_OWN = (b"INFO:", b"(")  # how such a line begins
LONGEST_OWN = 256


class PieceWriter(SpoolWriter):
    """Records in which neither the engine's key stands nor another secret."""

    def __init__(self, path: Path, key: str) -> None:
        super().__init__(path)
        self.masks.know([key])

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
        self.held = 0  # bytes of half a line at its end
        self.skipped = 0  # lines that are not written, as too many wait for the console
        self.is_crowded = False
        self.counted_at = 0.0
        self.early: list[tuple[str, dict[str, Any]]] = []  # events of a piece that had no room to begin
        self.ending: list[PieceWriter] = []  # that wait for room
        self.next_begin: float | None = None

    def begin(self, start: int | None = None) -> None:
        """A new piece, whose first line begins at that byte of engine.log: at its end where none is given."""
        self.done, self.held = (self.capture.size if start is None else start), 0
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

    def work(self, *, last: bool = False) -> bytes:
        """Make records of at most AT_ONCE more bytes; returns those. A line that is not ended yet may have to wait,
        unless it is the `last`."""
        if self.lines is None or self.done >= self.capture.size:
            return b""
        data = os.pread(self.capture.log, AT_ONCE, self.done)
        whole = data if last else self._without_half(data)
        self.held, data = len(data) - len(whole), whole
        self.done += len(data)
        told = self._without_own(data)
        if LOST.search(told):
            self._with_gaps(told)
        elif self._is_too_much():
            self.skipped += told.count(b"\n")
        else:
            self._tell_skipped()
            self.lines.feed(told)
        return data

    def _without_half(self, data: bytes) -> bytes:
        """Without half a line that may become one of our own."""
        end = data.rfind(b"\n") + 1
        half = data[end:]
        may_be = any(half.startswith(word) or word.startswith(half) for word in MAY_BE_OWN)
        is_held = may_be and len(half) < LONGEST_OWN and b"\r" not in half
        return data[:end] if is_held and (end or not self._is_within()) else data

    def _without_own(self, data: bytes) -> bytes:
        if b"HTTP/1.0" not in data:
            return data
        start = data.find(b"\n") + 1 if self._is_within() else 0  # behind the line that has begun already
        return data[:start] + OWN.sub(b"", data[start:])

    def _is_within(self) -> bool:
        """Whether the next byte belongs to a line that has begun."""
        return self.lines is not None and bool(self.lines.rest or self.lines.continues)

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
        if time.monotonic() - self.counted_at > 2.0:
            self.counted_at = time.monotonic()
            own = [path for path in pieces(self.folder.logs) if path.name.startswith(f"{self.folder.name}-")]
            self.is_crowded = sum(_size(path / "lines") for path in own) > MOST_UNSHIPPED
        return self.is_crowded and not self._is_within()

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
            self.work(last=True)
        self._tell_skipped()
        self.lines.close()
        told = list(reason) if reason else None
        self.writer.event("ended", state=state, exit=code, reason=told, more=more)
        if not self.writer.is_over():
            self.ending.append(self.writer)
        self.writer = self.lines = None

    @property
    def is_behind(self) -> bool:
        """Whether there is more in engine.log than records were made of, beside half a line that has to wait."""
        return self.done < self.capture.size - self.held

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
        self.done, self.held = self.capture.size, 0
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
    """Behind the line that begins at `at`, those of our own before it not counted; the end where it is not ended."""
    while own := OWN.match(data, at):
        at = own.end()
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end + 1
