"""How an engine is, in a small file that is replaced whole: the keeper writes it, the sampler sends all of them."""

import json
import time
from typing import Any

from deployments.agent import spool
from deployments.agent.config import Config
from deployments.agent.engines import folder, scrape
from deployments.agent.engines.folder import Folder, read_json

AT_MOST_S = 1.0
AT_LEAST_S = 3.0  # a living keeper says so
MOST_ENGINES = 64


class Now:
    """Writes `now.json` at most once a second, and every 3 s where nothing changes. A full disk keeps the old one."""

    def __init__(self, place: Folder, replica: int) -> None:
        self.path = place.path / "now.json"
        self.written = ""
        self.at = float("-inf")
        self.fields: dict[str, Any] = {
            "replica": replica, "state": "loading", "pid": None, "started_at": None, "ready_at": None, "restarts": 0,
            "progress": None, "reason": None, "metrics": dict(scrape.NOTHING), "facts": {},
        }  # fmt: skip

    def put(self, **fields: Any) -> None:
        self.fields |= fields

    def due_in(self) -> float:
        changed = json.dumps(self.fields, ensure_ascii=False) != self.written
        return max(0.0, self.at + (AT_MOST_S if changed else AT_LEAST_S) - time.monotonic())

    def tick(self, *, at_once: bool = False) -> None:
        if not at_once and self.due_in() > 0.0:
            return
        self.at, self.written = time.monotonic(), json.dumps(self.fields, ensure_ascii=False)
        try:
            told = {**self.fields, "at": round(time.time(), 3)}
            spool.write_whole(self.path, json.dumps(told, ensure_ascii=False).encode())
        except OSError:
            self.written = ""


def every(config: Config) -> list[dict[str, Any]]:
    """What every keeper of this server says, as the sample's `engines`; `kept` tells whether it lives. Where there are
    more than MOST_ENGINES, those that are kept come before those that have ended, and the newest before older ones."""
    found = []
    for place in folder.every(config):
        told = read_json(place.path / "now.json")
        if told is not None and told.get("replica") == int(place.name[1:]):
            found.append({**told, "kept": place.is_kept})
    found.sort(key=lambda told: (not told["kept"], -told["replica"]))
    return found[:MOST_ENGINES]
