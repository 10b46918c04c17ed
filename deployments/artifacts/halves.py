"""What has come of a download: half files, and which are whole, in a folder within the one that is written into.

Whoever is cut off, by SIGKILL for one, finds here how far each file has come and of which state of it. A whole file has
its own name; a half one only a number, so that nothing half is ever taken for a model's.
"""

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from deployments.artifacts.sources import File
from deployments.artifacts.sources.names import OWN


class Half:
    """One file on its way. `tag` is what its source told it by, '' before the first byte."""

    def __init__(self, part: Path, file: File) -> None:
        self.final = part / file.name
        key = hashlib.sha256(file.name.encode(errors="surrogateescape")).hexdigest()[:40]
        self.data, self.note_path = part / OWN / key, part / OWN / f"{key}.json"
        note = _read(self.note_path)
        self.tag = note["tag"] if note.get("mark") == file.mark and isinstance(note.get("tag"), str) else ""
        self.mark = file.mark
        self.done = note if note.get("done") is True else {}
        if note and not self.done and not self._is_of_use(note, file):
            self.drop()

    def _is_of_use(self, note: dict[str, Any], file: File) -> bool:
        """Not half of another state; nor what a power cut may have left holes in, where no digest would tell."""
        return note.get("mark") == file.mark and (note.get("boot") == boot() or bool(file.digest))

    @property
    def is_on_disk(self) -> bool:
        """Whether a whole file has seen no restart since: it is only put on the disk when all of them are there."""
        return self.done.get("boot") == boot()

    @property
    def size(self) -> int:
        """Bytes that are here and of use: without a tag or a digest nobody could tell whether the rest fits."""
        try:
            return self.data.stat().st_size if self.tag or self.mark else 0
        except OSError:
            return 0

    def is_whole(self, file: File) -> bool:
        """Whether an earlier try has brought this very file in, and it lies there."""
        told = self.done
        if not told or told.get("mark") != file.mark or (file.size is not None and told.get("size") != file.size):
            return False
        path = self.final
        return path.is_file() and not path.is_symlink() and path.stat().st_size == told.get("size")

    def begin(self, tag: str) -> None:
        """Note what the bytes to come are of. Raises OSError."""
        if tag != self.tag or not self.note_path.exists():
            self.tag = tag
            self._note({"tag": tag, "mark": self.mark, "boot": boot()})

    def drop(self) -> None:
        self.data.unlink(missing_ok=True)
        self.note_path.unlink(missing_ok=True)
        self.tag, self.done = "", {}

    def finish(self, size: int, sha256: str) -> None:
        """Give the file its name. Raises OSError."""
        self.final.parent.mkdir(parents=True, exist_ok=True)
        self.data.replace(self.final)
        self.done = {
            "done": True, "tag": self.tag, "mark": self.mark, "size": size, "sha256": sha256, "boot": boot(),
        }  # fmt: skip
        self._note(self.done)

    def _note(self, data: dict[str, Any]) -> None:
        new = self.note_path.with_suffix(".new")
        new.write_text(json.dumps(data))
        new.replace(self.note_path)


@functools.cache
def boot() -> str:
    """Differs after a restart of the machine; '' where it does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
