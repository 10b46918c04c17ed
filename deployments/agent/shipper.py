"""Ships the lines of attempts, and the pieces of engines' logs, into the server's log stream, until the console has
acknowledged each.

Takes any Redis client by its methods, so that only `link.py` imports redis.
"""

import json
import time
import zlib
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from deployments.agent import keys, reboots, spool

WINDOW = 16  # chunks on their way, for each attempt
PATIENCE_S = 1.0  # without progress, when the console has taken the chunks out of the stream
PROBE_S = 10.0  # without progress, while they still stand there: the console is away, or missed them
MAX_PROBE_S = 60.0
RESCAN_S = 2.0
BUSY_S = 5.0


class InFlight(NamedTuple):
    """One chunk that is sent and not acknowledged: where it ends, and its place in the stream."""

    next_line: int
    next_byte: int
    entry: bytes


@dataclass
class Track:
    """How far one attempt is: sent up to `line` and `byte`, acknowledged up to `acked_line` and `acked_byte`."""

    folder: Path
    reader: spool.SpoolReader
    line: int = 1
    byte: int = 0
    acked_line: int = 1
    acked_byte: int = 0
    known: bool = False  # what the console has was asked for
    sent_last: bool = False
    flying: deque[InFlight] = field(default_factory=deque)
    window: int = WINDOW
    progress_at: float = 0.0
    patience: float = PATIENCE_S
    wrote_at: float = float("-inf")

    def take_ack(self, line: int, byte: int, now: float) -> None:
        if line < self.acked_line:  # the console went back, a restored database for instance: so do we
            self.flying.clear()
            self.line, self.byte, self.sent_last = line, byte, False
        if line == self.acked_line and byte == self.acked_byte:
            return
        self.acked_line, self.acked_byte = line, byte
        while self.flying and self.flying[0].next_line <= line:
            self.flying.popleft()
        if self.line < line:  # it has more than we sent since we began
            self.line, self.byte = line, byte
        self.progress_at, self.patience, self.window = now, PATIENCE_S, WINDOW

    def go_back(self, now: float, window: int) -> None:
        self.flying.clear()
        self.line, self.byte, self.sent_last = self.acked_line, self.acked_byte, False
        self.window, self.progress_at = window, now


class Shipper:
    """One server's. `tick` sends what there is; raises what the client raises, and goes on at the next tick."""

    def __init__(self, redis: Any, prefix: str, attempts_folder: Path, logs_folder: Path | None = None) -> None:
        self.redis = redis
        self.logs = keys.logs(prefix)
        self.acked = keys.acked(prefix)
        self.roots = [(attempts_folder, spool.ATTEMPT_ID)] + ([(logs_folder, spool.PIECE_ID)] if logs_folder else [])
        self.tracks: dict[str, Track] = {}
        self.done: set[str] = set()
        self.forgotten: list[str] = []  # whose acknowledgement in Redis is of no use any more
        self.folder_times: list[int] = []
        self.scanned_at = float("-inf")

    @property
    def is_busy(self) -> bool:
        """Whether lines were written lately or wait for their acknowledgement: look often."""
        now = time.monotonic()
        return any(track.flying or now - track.wrote_at < BUSY_S for track in self.tracks.values())

    def active(self) -> list[str]:
        """Attempts whose runner lives, or that wait for the server to start anew."""
        folders = ((name, track.folder) for name, track in self.tracks.items())
        return [name for name, folder in folders if spool.is_alive(folder) or reboots.is_left(folder)]

    def tick(self) -> int:
        """One round over all attempts; returns how many chunks were sent."""
        self._scan()
        if self.forgotten:
            self.redis.hdel(self.acked, *self.forgotten)
            self.forgotten.clear()
        self._read_acks()
        return sum(self._send(name, track) for name, track in list(self.tracks.items()))

    def _scan(self) -> None:
        """Find new attempts: at once when the folder changed, else now and then."""
        now = time.monotonic()
        changed = [_changed(root) for root, _named in self.roots]
        if changed == self.folder_times and now - self.scanned_at < RESCAN_S:
            return
        self.folder_times, self.scanned_at = changed, now
        found = {folder.name: folder for root, named in self.roots for folder in spool.folders(root, named)}
        self.done &= found.keys()
        for name in self.tracks.keys() - found.keys():
            self.tracks.pop(name).reader.close()
        for name, folder in found.items():
            if name in self.tracks or name in self.done:
                continue
            if (folder / "shipped").exists():
                spool.mark_shipped(folder)  # whoever did so may have been killed half-way
                self.done.add(name)
                self.forgotten.append(name)
            else:
                self.tracks[name] = Track(folder, spool.SpoolReader(folder), progress_at=now)

    def _read_acks(self) -> None:
        """Ask once for all that wait for an answer."""
        asked = [name for name, track in self.tracks.items() if track.flying or not track.known]
        if not asked:
            return
        now = time.monotonic()
        for name, answer in zip(asked, self.redis.hmget(self.acked, asked), strict=True):
            track = self.tracks[name]
            track.known = True
            if answer is not None:
                line, byte, done = json.loads(answer)
                if done:
                    self._finish(name, track)
                    continue
                track.take_ack(int(line), int(byte), now)
            if track.flying:
                self._look_back(track, now)

    def _finish(self, name: str, track: Track) -> None:
        """The console has the end. The claim stays, everything else goes, once the runner is gone as well."""
        if spool.is_alive(track.folder):
            return
        track.reader.close()
        spool.mark_shipped(track.folder)
        self.redis.hdel(self.acked, name)
        self.tracks.pop(name)
        self.done.add(name)

    def _look_back(self, track: Track, now: float) -> None:
        """Send again from the acknowledged line when nothing moves.

        Chunks that still stand in the stream are not repeated, but for one now and then: an ingest that is
        away for hours must not find the same lines a thousand times.
        """
        if now - track.progress_at < track.patience:
            return
        first = self.redis.xrange(self.logs, count=1)
        if first and _place(first[0][0]) <= _place(track.flying[0].entry):
            if track.patience < PROBE_S:
                track.patience = PROBE_S
                return
            track.patience = min(track.patience * 2, MAX_PROBE_S)
            track.go_back(now, window=1)
        else:
            track.patience = min(track.patience * 2, PROBE_S)
            track.go_back(now, window=WINDOW)

    def _send(self, name: str, track: Track) -> int:
        if track.sent_last or not track.known:
            return 0
        sent = 0
        while len(track.flying) < track.window:
            chunk = track.reader.chunk(track.line, track.byte)
            if chunk is None:
                break
            now = time.monotonic()
            if not track.flying:
                track.progress_at = now
            entry = self.redis.xadd(self.logs, _fields(name, chunk))
            track.line, track.byte = chunk.first + chunk.n, chunk.b1
            track.flying.append(InFlight(track.line, track.byte, entry))
            track.wrote_at = now
            sent += 1
            if chunk.is_last:
                track.sent_last = True
                break
        return sent


def _fields(name: str, chunk: spool.Chunk) -> dict[str, Any]:
    """One entry of the log stream."""
    return {
        "a": name,
        "f": chunk.first,
        "n": chunk.n,
        "b0": chunk.b0,
        "b1": chunk.b1,
        "z": zlib.compress(chunk.raw, 1),
    }


def _changed(root: Path) -> int:
    """When something came or went there, in ns; -1 where there is no such folder."""
    try:
        return root.stat().st_mtime_ns
    except FileNotFoundError:
        return -1


def _place(entry: bytes) -> tuple[int, int]:
    """A stream id as what it orders by."""
    millis, _, count = entry.partition(b"-")
    return int(millis), int(count or 0)
