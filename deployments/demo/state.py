"""Engines that jobs started on a simulated server: one JSON file each in `<state dir>/engines`.

A simulated tool writes a file when its engine starts and removes it when it ends; the readings follow. Files of
another shape are passed over: they may come from a newer version.
"""

import json
import os
from pathlib import Path

from deployments.demo.fleet import DemoServer, Engine
from deployments.demo.physics import PATTERNS

MOST = 64
MOST_BYTES = 65536


def start(folder: Path, engine: Engine) -> Path:
    """Write the engine down and return its file. The file is complete when it appears."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{engine.pids[0]}.json"
    draft = folder / f".{engine.pids[0]}.new"
    draft.write_text(json.dumps(engine.__dict__), encoding="utf-8")
    draft.rename(path)
    return path


def stop(path: Path) -> None:
    path.unlink(missing_ok=True)


class Engines:
    """The engines of one server: its own and those of jobs. Looks at the folder again only when it changed."""

    def __init__(self, server: DemoServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self._seen = -1
        self._all = server.engines

    def running(self) -> tuple[Engine, ...]:
        try:
            changed = os.stat(self.folder).st_mtime_ns  # noqa: PTH116 - asked for every server every second
        except OSError:
            changed = 0
        if changed != self._seen:
            self._seen = changed
            self._all = self.server.engines + tuple(_read(self.folder, len(self.server.chips)) if changed else ())
        return self._all


def _read(folder: Path, chips: int) -> list[Engine]:
    found = []
    for path in sorted(folder.glob("*.json"))[:MOST]:
        try:
            with path.open(encoding="utf-8") as file:
                made = json.loads(file.read(MOST_BYTES))
            engine = Engine(**{**made, "chips": tuple(made["chips"]), "pids": tuple(made["pids"])})
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            continue
        if _is_whole(engine, chips):
            found.append(engine)
    return found


def _is_whole(engine: Engine, chips: int) -> bool:
    """Whether physics can reckon with it on a server of so many chips."""
    numbers = (*engine.chips, *engine.pids, engine.memory_mb, engine.seed)
    words = (engine.holder, engine.program, engine.pattern, engine.user, engine.command)
    return (
        all(type(number) is int and number >= 0 for number in numbers)
        and all(isinstance(word, str) for word in words)
        and isinstance(engine.since, (int, float))
        and isinstance(engine.attempt, (str, type(None)))
        and all(chip < chips for chip in engine.chips)
        and len(engine.pids) == len(engine.chips)
        and engine.pattern in PATTERNS
    )
