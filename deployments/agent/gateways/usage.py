"""What each key used, by day: read from nginx's log of usage, once each, into totals that only grow.

`usage.json` holds how far the log was read together with the totals, and is replaced whole: whatever is cut off, no
line is counted twice and none is left out. Totals are told again and again: none is lost while the console is away.
"""

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deployments.agent import spool

MOST_LOG = 16 << 20
A_READ = 4 << 20
OLD_S = 60.0
KEPT_DAYS = 62
FRESH_S = 60.0
ALL_EVERY_S = 300.0
MOST_ROWS = 2000
FIELDS = ("requests", "failed", "prompt_tokens", "completion_tokens")


class Usage:
    """`totals` is {"day key": [requests, failed, prompt tokens, completion tokens]}; `day_offset_s` is where a day
    begins, in seconds east of UTC. `places` is {inode: offset} of the log and of the one before it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log, self.old = folder / "usage.log", folder / "usage.old"
        self.changed: dict[str, float] = {}  # monotonic
        self.all_at = 0.0
        self.turned_at = time.monotonic()
        found = _read(folder / "usage.json")
        self.places: dict[str, int] = found.get("places", {})
        self.totals: dict[str, list[int]] = found.get("totals", {})

    def turn(self, day_offset_s: int) -> int:
        """Count what was written since; returns how many lines."""
        count = 0
        seen: dict[str, int] = {}
        for path in (self.old, self.log):
            while lines := self._lines(path, seen):
                count += sum(self._count(line, day_offset_s) for line in lines)
        self.places = seen
        if count or self._forget():
            self.save()
        return count

    def _lines(self, path: Path, seen: dict[str, int]) -> list[bytes]:
        """Whole lines alone: the last may be in the middle of being written."""
        try:
            with path.open("rb") as file:
                about = os.fstat(file.fileno())
                name = str(about.st_ino)
                offset = self.places.get(name, 0)
                offset = 0 if offset > about.st_size else offset
                file.seek(offset)
                data = file.read(A_READ)
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == A_READ:  # no line of ours is so long
            whole = data
        self.places[name] = seen[name] = offset + len(whole)
        return whole.splitlines()

    def begin_anew(self, reopen: Callable[[], object]) -> bool:
        """Put a long log aside, for nginx to `reopen` a new one. The old one stays until nobody can write into it."""
        since = time.monotonic() - self.turned_at
        if self.old.exists():
            if since > OLD_S:
                self.old.unlink()
            return False
        if not self.log.exists() or self.log.stat().st_size < MOST_LOG:
            return False
        self.log.replace(self.old)
        self.turned_at = time.monotonic()
        reopen()
        return True

    def _count(self, line: bytes, day_offset_s: int) -> int:
        try:
            said = json.loads(line)
            key, status, at = int(said["key"]), int(said["status"]), float(said["t"])
            tokens = [int(said[name] or 0) for name in ("prompt", "completion")]
            day = datetime.fromtimestamp(at + day_offset_s, UTC).date().isoformat()
        except (ValueError, KeyError, TypeError, OverflowError, OSError):
            return 0
        row = self.totals.setdefault(f"{day} {key}", [0, 0, 0, 0])
        for place, more in enumerate((1, int(status >= 400), *tokens)):
            row[place] += more
        self.changed[f"{day} {key}"] = time.monotonic()
        return 1

    def _forget(self) -> bool:
        """Days that the console has long heard of."""
        first = datetime.fromtimestamp(time.time() - KEPT_DAYS * 86400, UTC).date().isoformat()
        old = [name for name in self.totals if name[:10] < first]
        for name in old:
            del self.totals[name]
        return bool(old)

    def save(self) -> None:
        content = {"places": self.places, "totals": self.totals}
        spool.write_synced(self.folder / "usage.json", json.dumps(content).encode())

    def told(self) -> list[list[Any]]:
        """[[day, key, requests, failed, prompt, completion]]: what changed of late, and every 5 min all of it."""
        now = time.monotonic()
        if now >= self.all_at:
            self.all_at = now + ALL_EVERY_S
            for name in self.totals:
                self.changed[name] = now
        fresh = [name for name, at in self.changed.items() if now - at < FRESH_S]
        self.changed = {name: self.changed[name] for name in fresh}
        rows = [(name, self.totals[name]) for name in fresh if name in self.totals]
        return [[name[:10], int(name[11:]), *row] for name, row in rows[:MOST_ROWS]]


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
