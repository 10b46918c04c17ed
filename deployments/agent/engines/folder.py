"""The folder of one engine, `<state>/engines/e<replica>/`, and the pieces of its log that wait for the console.

`spec.json` (what to start), `wish` ("run" or "stop"), `lock` (the keeper's for life), `engine` (identity of the group's
leader), `history` (when it died), `failed` (why it is not started any more), `piece` (where the newest piece of the log
begins), `now.json` (how it is), `output` (the FIFO that the engine prints into), `engine.log` and its older parts.

A piece is `<state>/logs/e<replica>-<n>/lines`, in the records of an attempt.
"""

import contextlib
import errno
import json
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments import locks
from deployments.agent import processes, spool
from deployments.agent.config import Config
from deployments.steps import Text

NAME = re.compile(r"e\d{1,18}")
MOST_JSON = 256 * 1024
SHIPPED_S = 60.0
KEPT_S = 7 * 86400.0  # the folder of an engine that was stopped: its log helps to say why
ENGINE_BYTES = 256


@dataclass(frozen=True)
class Folder:
    """One engine's; what cannot be read is None, or as if nobody had asked for anything."""

    path: Path
    logs: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def spec(self) -> dict[str, Any] | None:
        return read_json(self.path / "spec.json")

    @property
    def wish(self) -> str:
        """ "run" or "stop"; without a word nothing is to run."""
        try:
            return "run" if (self.path / "wish").read_bytes()[:16].strip() == b"run" else "stop"
        except OSError:
            return "stop"

    def ask(self, wish: str) -> None:
        """Ask for "run" or "stop"; asking anew is forgiving: why it failed and how often it died is forgotten."""
        spool.write_synced(self.path / "wish", wish.encode())

    @property
    def asked_at(self) -> int:
        """When the wish was written, in ns; 0 where there is none."""
        return _mtime(self.path / "wish")

    @property
    def failed(self) -> Text | None:
        """Why it is not started any more; None after it was asked for anew."""
        found = read_json(self.path / "failed")
        if found is None or _mtime(self.path / "failed") < self.asked_at:
            return None
        return as_text(found.get("reason")) or Text("引擎反复退出。", "The engine ended again and again.")

    def fail(self, reason: Text) -> None:
        self._write("failed", {"reason": list(reason)})

    @property
    def deaths(self) -> list[float]:
        """When it died (epoch seconds), since it was asked for."""
        found = read_json(self.path / "history")
        if found is None or _mtime(self.path / "history") < self.asked_at or not isinstance(found.get("deaths"), list):
            return []
        return [float(at) for at in found["deaths"] if isinstance(at, (int, float))]

    @property
    def died_of(self) -> Text | None:
        """Why it died last, since it was asked for."""
        return as_text((read_json(self.path / "history") or {}).get("reason")) if self.deaths else None

    def note_deaths(self, deaths: list[float], reason: Text) -> None:
        self._write("history", {"deaths": deaths[-100:], "reason": list(reason)})

    @property
    def engine(self) -> processes.Identity | None:
        """Who leads or led the engine's processes."""
        found = read_json(self.path / "engine")
        try:
            return (
                processes.Identity(int(found["pid"]), int(found["started"]), str(found["boot_id"])) if found else None
            )
        except (ValueError, KeyError, TypeError):
            return None

    def note_engine(self, who: processes.Identity | None) -> None:
        """Written in place, so that on a full disk it can be changed where it could be made. Raises OSError."""
        text = json.dumps(who._asdict() if who else {}).encode().ljust(ENGINE_BYTES)
        descriptor = os.open(self.path / "engine", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.pwrite(descriptor, text, 0) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @property
    def has_engine(self) -> bool:
        """Whether the leader of its processes lives."""
        who = self.engine
        return who is not None and processes.lives(who)

    @property
    def is_kept(self) -> bool:
        """Whether its keeper lives."""
        return locks.is_locked(self.path / "lock")

    @property
    def keeper(self) -> int | None:
        """The keeper's pid, while it lives."""
        try:
            return int((self.path / "lock").read_bytes()[:20]) if self.is_kept else None
        except (OSError, ValueError):
            return None

    @property
    def piece(self) -> tuple[int, int] | None:
        """Number of the newest piece, and the byte of engine.log at which it begins."""
        found = read_json(self.path / "piece")
        try:
            return (int(found["n"]), int(found["from"])) if found else None
        except (ValueError, KeyError, TypeError):
            return None

    def note_piece(self, n: int, start: int) -> None:
        self._write("piece", {"n": n, "from": start})

    def piece_folder(self, n: int) -> Path:
        return self.logs / f"{self.name}-{n}"

    def newest_piece(self) -> int:
        """The greatest number that was given; 0 before the first."""
        there = [
            int(path.name.rpartition("-")[2]) for path in pieces(self.logs) if path.name.startswith(f"{self.name}-")
        ]
        return max([self.piece[0] if self.piece else 0, *there])

    def _write(self, name: str, data: dict[str, Any]) -> None:
        spool.write_synced(self.path / name, json.dumps(data, ensure_ascii=False).encode())


def of(config: Config, name: str) -> Folder:
    return Folder(config.engines / name, config.logs)


def every(config: Config) -> list[Folder]:
    return below(config.state_dir)


def below(state_dir: Path) -> list[Folder]:
    """The engines of this server, sorted by name; what is not named like one is left out."""
    try:
        names = sorted(entry.name for entry in (state_dir / "engines").iterdir() if NAME.fullmatch(entry.name))
    except OSError:
        return []
    return [Folder(state_dir / "engines" / name, state_dir / "logs") for name in names]


def alive(state_dir: Path) -> list[Folder]:
    """The engines that run, or are kept."""
    return [place for place in below(state_dir) if place.is_kept or place.has_engine]


def sessions(state_dir: Path) -> dict[int, str]:
    """Which session is which living engine's."""
    found = {}
    for place in below(state_dir):
        if (who := place.engine) is not None and processes.lives(who):
            found[who.pid] = place.name
    return found


def keepers(state_dir: Path) -> list[int]:
    return [pid for place in below(state_dir) if (pid := place.keeper) is not None]


def pieces(logs: Path) -> list[Path]:
    return spool.folders(logs, spool.PIECE_ID)


def purge(logs: Path) -> int:
    """Remove pieces that the console has; returns how many."""
    removed = 0
    for folder in pieces(logs):
        with contextlib.suppress(OSError):
            if time.time() - (folder / "shipped").stat().st_mtime >= SHIPPED_S:
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
    return removed


def forget(state_dir: Path) -> list[str]:
    """Remove the folders of engines that were asked to stop KEPT_S ago and of which nothing runs; returns their names.

    Pieces of their logs stay until the console has them. An engine that is to start again gets a folder anew.
    """
    oldest = (time.time() - KEPT_S) * 1e9
    removed = []
    for place in below(state_dir):
        if place.wish == "stop" and 0 < place.asked_at < oldest and not place.is_kept and not place.has_engine:
            shutil.rmtree(place.path, ignore_errors=True)
            removed.append(place.name)
    return removed


def read_json(path: Path) -> dict[str, Any] | None:
    """A small file's object; None where there is none."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MOST_JSON))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def as_text(found: Any) -> Text | None:
    if isinstance(found, list) and len(found) == 2:
        return Text(str(found[0])[:1000], str(found[1])[:1000])
    return None


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
