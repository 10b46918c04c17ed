"""How a simulated server starts anew: nothing is heard of it for a while, then it has another boot id.

`<state dir>/reboot.json` holds {"from", "until", "done", "boot_id"}: what its tool `root-helper` wrote, whether it is
back, and with which boot id.
"""

import json
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

from deployments.agent import spool
from deployments.agent.reboots import BOOT_ID
from deployments.demo import contents

FILE = "reboot.json"
GOES_DOWN_S = 1.0
DOWN_S = 20.0
LEAST_DOWN_S = 2.0  # however fast jobs are acted out
DEAD_S = 600.0  # one that does not come back by itself: then somebody has gone there


def begin(state_dir: Path, t: float, down_s: float = DOWN_S) -> None:
    """The server starts anew from now on."""
    _write(state_dir, {"from": t + GOES_DOWN_S, "until": t + GOES_DOWN_S + down_s, "done": False})


def is_down(state_dir: Path, t: float) -> bool:
    """Whether it is on its way; the first question after that brings it back with a new boot id."""
    return look(state_dir, t) == "down"


def look(state_dir: Path, t: float) -> str:
    """Whether it is "up" or "down", or has come "back" just now, with a new boot id, which is told once."""
    told = _read(state_dir)
    if told is None or told["done"] or t < told["from"]:
        return "up"
    if t < told["until"]:
        return "down"
    shutil.rmtree(state_dir / "engines", ignore_errors=True)  # what jobs had started there
    contents.started(state_dir)
    made = secrets.token_hex(16)
    path = state_dir / "root" / BOOT_ID
    path.parent.mkdir(parents=True, exist_ok=True)
    spool.write_whole(path, f"{made}\n".encode())
    _write(state_dir, {**told, "done": True, "boot_id": made})
    return "back"


def uptime_s(state_dir: Path) -> int | None:
    """Seconds since it came back; None where it never started anew."""
    told = _read(state_dir)
    return int(max(0.0, time.time() - told["until"])) if told and told["done"] else None


def facts(state_dir: Path) -> dict[str, Any]:
    """Boot id and time of the last start, for the facts; nothing where it never started anew."""
    told = _read(state_dir)
    if not told or not told["done"] or not told["boot_id"]:
        return {}
    return {"boot_id": told["boot_id"], "boot_at": int(told["until"])}


def _read(state_dir: Path) -> dict[str, Any] | None:
    try:
        told = json.loads((state_dir / FILE).read_bytes())
        return {
            "from": float(told["from"]),
            "until": float(told["until"]),
            "done": bool(told["done"]),
            "boot_id": str(told.get("boot_id") or ""),
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _write(state_dir: Path, told: dict[str, Any]) -> None:
    spool.write_whole(state_dir / FILE, json.dumps(told).encode())
