"""Samples on disk between sampler and link: `telemetry/<number>.json`, the newest 120, each whole."""

import json
from pathlib import Path
from typing import Any

from deployments.agent.spool import write_whole

MAX_KEPT = 120


def waiting(folder: Path) -> list[Path]:
    """Files to be sent, oldest first."""
    try:
        numbers = [int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal()]
    except FileNotFoundError:
        return []
    return [folder / f"{number}.json" for number in sorted(numbers)]


class Outbox:
    """The sampler's end. Numbers go on from what is there, so that order survives a restart."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        kept = waiting(folder)
        self.next = int(kept[-1].stem) + 1 if kept else 1

    def put(self, message: dict[str, Any]) -> None:
        """Leave one message for the link; where it is away for long, only the newest stay."""
        write_whole(self.folder / f"{self.next}.json", json.dumps(message, ensure_ascii=False).encode())
        self.next += 1
        for path in waiting(self.folder)[:-MAX_KEPT]:
            path.unlink(missing_ok=True)
