"""How a program on a server tells the console what it has found: a line in the file $ASCEND_ITEMS.

It travels as an event of the job, and services/told.py hands it to who makes rows of it.
"""

import json
import os
from pathlib import Path
from typing import Any

MOST_BYTES = 30_000


def tell(what: str, data: dict[str, Any]) -> None:
    """Append one line; outside a job there is nobody to tell. Raises ValueError where it is too long to travel."""
    line = _line(what, data)
    if len(line) > MOST_BYTES:
        raise ValueError(f"{what}: {len(line)} bytes, and {MOST_BYTES} can travel")
    if path := os.environ.get("ASCEND_ITEMS"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def travels(what: str, data: dict[str, Any]) -> bool:
    """Whether it is short enough."""
    return len(_line(what, data)) <= MOST_BYTES


def _line(what: str, data: dict[str, Any]) -> str:
    return json.dumps({"told": what, "data": data}, ensure_ascii=True)
