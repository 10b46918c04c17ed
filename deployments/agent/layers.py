"""What the console has sent since `config.json` was written. That file is root's where root has installed the agent,
so each of these lies in the state folder, over it: a JSON object whose `over` marks the config that it stands over.
One that joining has written anew ends them all.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from deployments.agent import spool

log = logging.getLogger("layers")

CREDENTIALS = "credentials.json"
AUTHORITIES = "authorities.json"
ADDRESSES = "addresses.json"
PRESENT = "address"  # text: which of the addresses the link goes by
ALL = (CREDENTIALS, AUTHORITIES, ADDRESSES, PRESENT)

Kept = TypeVar("Kept")


def read(path: Path, make: Callable[[Any], Kept], instead: str) -> Kept | None:
    """What `make` makes of a layer's JSON. None where nothing was sent, and where it cannot be read: the log says so,
    and what is used `instead`. `make` may raise ValueError, KeyError and TypeError."""
    try:
        return make(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be read (%s); %s", path, error, instead)
        return None


def write(path: Path, layer: dict[str, Any]) -> None:
    """On the disk when it returns, whole; nobody but this user may read it."""
    spool.write_synced(path, json.dumps(layer).encode())


def stamp(state_dir: Path, config: Path) -> tuple[tuple[int, int], ...]:
    """Changes whenever the config or a layer over it does."""
    return tuple(_stamp(path) for path in (config, *(state_dir / name for name in ALL)))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns
