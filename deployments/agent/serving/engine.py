"""The folder of one engine as the programs of its jobs see it: what they write for its keeper, what that has written.

What lies there is told by `engines/folder.py`; of ours is `idle.json`: the memory that each NPU used before the engine
came, MB by name.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.agent import processes, spool
from deployments.agent.config import Config
from deployments.agent.engines import folder
from deployments.agent.engines.engine import Members
from deployments.agent.engines.folder import Folder, read_json

LOG_FROM = "log-from"
LAST_BYTES = 256 * 1024  # of its log, where the reason of a failure is looked for


@dataclass(frozen=True)
class Engine:
    """One engine's folder; none of it need be there."""

    place: Folder

    @property
    def folder(self) -> Path:
        return self.place.path

    def now(self) -> dict[str, Any]:
        """What its keeper has said last, {} where it has said nothing that can be read."""
        return read_json(self.folder / "now.json") or {}

    def spec(self) -> dict[str, Any]:
        return self.place.spec or {}

    def idle(self) -> dict[str, int]:
        """MB that each NPU used before the engine came, by name; what is not known is left out."""
        return {name: used for name, used in (read_json(self.folder / "idle.json") or {}).items() if type(used) is int}

    def wish(self, word: str) -> None:
        """`run` or `stop`, on the disk when it returns. Raises OSError."""
        self.place.ask(word)

    def write(self, spec: Mapping[str, Any], idle: Mapping[str, int]) -> None:
        """Whole, for nobody else to read. What a keeper before has said goes: it was of another start.

        Raises OSError.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        (self.folder / "now.json").unlink(missing_ok=True)
        spool.write_synced(self.folder / "idle.json", json.dumps(idle).encode())
        spool.write_synced(self.folder / "spec.json", json.dumps(spec, ensure_ascii=False, indent=1).encode())

    def is_kept(self) -> bool:
        """Whether a keeper lives."""
        return self.place.is_kept

    def leader(self) -> processes.Identity | None:
        """The first process of the engine, as its keeper noted it."""
        return self.place.engine

    def members(self) -> list[int]:
        """The living processes of the engine; they may have outlived its first one."""
        who = self.leader()
        return Members(who, self.place.path).look(deeply=True) if who and who.boot_id == processes.boot_id() else []

    def kill(self) -> list[int]:
        """End all of it for good; who is there still."""
        who = self.leader()
        return Members(who, self.place.path).kill() if who and who.boot_id == processes.boot_id() else []

    def log_end(self) -> tuple[int, int]:
        """Which file its log is (inode) and how long it is, (0, 0) where there is none."""
        try:
            found = (self.folder / "engine.log").stat()
        except OSError:
            return 0, 0
        return found.st_ino, found.st_size

    def last_words(self, since: tuple[int, int] = (0, 0)) -> str:
        """The end of its log, of what came behind `since` (see `log_end`)."""
        try:
            with (self.folder / "engine.log").open("rb") as file:
                found = os.fstat(file.fileno())
                start = since[1] if found.st_ino == since[0] and found.st_size >= since[1] else 0
                file.seek(max(start, found.st_size - LAST_BYTES))
                return file.read(LAST_BYTES).decode(errors="replace")
        except OSError:
            return ""


def note_log(end: tuple[int, int]) -> None:
    """Keep, for the steps that follow in this attempt's folder, where the log of this start begins."""
    Path(LOG_FROM).write_text(f"{end[0]} {end[1]}")


def noted_log() -> tuple[int, int]:
    try:
        inode, size = Path(LOG_FROM).read_text().split()
        return int(inode), int(size)
    except (OSError, ValueError):
        return 0, 0


def of(config: Config, name: str) -> Engine:
    return Engine(folder.of(config, name))
