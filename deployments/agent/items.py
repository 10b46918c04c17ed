"""Follows the file in which a step's program reports, and makes event fields of each line: items of a report, and
what it tells the console (artifacts/tell.py).

The program is not trusted: only the fields of an item are taken, each within its size.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

VERDICTS = ("ok", "warning", "failed", "unknown")
MAX_WORDS = 2000
MAX_LINE = 32 * 1024
MAX_TOLD = 30_000  # as an event it is a little longer, and an event is one record


class ItemReader:
    """New items since the last call, in order; a line that is no item comes as its text."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor: int | None = None
        self.offset = 0
        self.rest = b""
        with contextlib.suppress(OSError):  # on a full disk the program makes it, once there is room
            path.touch(mode=0o600)

    def read(self) -> list[dict[str, Any] | str]:
        found: list[dict[str, Any] | str] = []
        if not self._is_open():
            return found
        assert self.descriptor is not None
        while data := os.pread(self.descriptor, 65536, self.offset):
            self.offset += len(data)
            *lines, self.rest = (self.rest + data).split(b"\n")
            found += [item(line) for line in lines if line.strip()]
            if len(self.rest) > MAX_LINE:
                found.append(item(self.rest))
                self.rest = b""
        return found

    def close(self) -> list[dict[str, Any] | str]:
        """What is left, a last line without its end included."""
        found = self.read()
        if self.rest.strip():
            found.append(item(self.rest))
        if self.descriptor is not None:
            os.close(self.descriptor)
        return found

    def _is_open(self) -> bool:
        if self.descriptor is None:
            with contextlib.suppress(OSError):
                self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return self.descriptor is not None


def item(line: bytes) -> dict[str, Any] | str:
    """The fields of an `item` event, those of a `told` one, or the line's text where it is neither."""
    text = line[:MAX_LINE].decode(errors="replace")
    try:
        # What is no character, a lone surrogate, cannot be written into a record.
        data = json.loads(json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return text
    if (
        len(line) <= MAX_TOLD
        and isinstance(data, dict)
        and isinstance(data.get("told"), str)
        and isinstance(data.get("data"), dict)
    ):
        return {"told": data["told"][:40], "data": data["data"]}
    if not isinstance(data, dict) or not isinstance(data.get("key"), str):
        return text
    verdict = data.get("verdict")
    return {
        "key": data["key"][:100],
        "title": _pair(data.get("title")) or [data["key"][:100]] * 2,
        "verdict": verdict if verdict in VERDICTS else "unknown",
        "found": _words(data.get("found")),
        "wanted": _words(data.get("wanted")),
        "remedy": _pair(data.get("remedy")),
        "job": _job(data.get("job")),
    }


def _is_told(data: Any) -> bool:
    return isinstance(data, dict) and isinstance(data.get("told"), str) and isinstance(data.get("data"), dict)


def _words(value: Any) -> str | None:
    if value is None or isinstance(value, (dict, list)):
        return None
    return str(value)[:MAX_WORDS]


def _pair(value: Any) -> list[str] | None:
    """[zh, en], None for everything else."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(text, str) for text in value):
        return [text[:MAX_WORDS] for text in value]
    return None


def _job(value: Any) -> dict[str, Any] | None:
    """The job that applies the remedy."""
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return None
    params = value.get("params", {})
    if not isinstance(params, dict) or len(json.dumps(params)) > 4096:
        return None
    return {"kind": value["kind"][:40], "params": params}
