"""One part of a bundle: a zip of masked files with the list of what is in it and what could not be had."""

import hashlib
import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from deployments.agent.support import INDEX
from deployments.agent.support.files import shown
from deployments.agent.support.masking import Masks
from deployments.steps import Text

LINE = 64 * 1024  # of a longer line the rest is left out, for no mask could judge it by itself
HEAD = LEAST = 4096
SPARE = 512 << 20  # bytes of the disk that others need more than a bundle does
MOST_ENTRIES = 4000
MOST_MISSING = 500
EPOCH = (1980, 1, 1, 0, 0, 0)
Read = Callable[[int], bytes]

BINARY = Text(
    "二进制文件，无法遮盖其中的秘密，因此没有放入", "it is binary, so nothing in it could be masked: left out"
)
NO_ROOM = Text(
    "磁盘空间不足，没有继续收集。请腾出空间，再重新收集。",
    "The disk has too little room left, so collecting stopped. Make room, then collect again.",
)
TOO_LONG = Text("已到时间上限，没有继续收集", "the time limit was reached, so collecting stopped")
TOO_MUCH = Text("已到大小上限，没有继续收集", "the size limit was reached, so the rest was left out")


class Full(Exception):
    """Nothing more may be taken; `text` says why."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


class Part:
    """`most` are bytes before they are packed; `until` is a moment of time.monotonic()."""

    def __init__(self, path: Path, masks: Masks, most: int, until: float) -> None:
        self.path, self.masks, self.left, self.until = path, masks, most, until
        self.entries: list[dict[str, Any]] = []
        self.missing: list[dict[str, Any]] = []
        self.names: set[str] = set()
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=4)

    # ---------- what was found ----------

    def text(self, name: str, text: str) -> None:
        """Raises Full."""
        self.add(name, io.BytesIO(text.encode("utf-8", "replace")).read)

    def file(self, name: str, descriptor: int, *, most: int, raw: bool = False) -> None:
        """The last `most` bytes of an open file as it is now; what is written meanwhile is not waited for. Raises Full,
        OSError. Closes the descriptor."""
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin = max(0, size - min(most, self.left))
            file.seek(begin)
            if begin:
                file.readline(LINE)  # half a line
            self.add(name, bounded(file, size - file.tell()), cut=begin, raw=raw)

    def add(self, name: str, read: Read, *, cut: int = 0, raw: bool = False) -> None:
        """What `read` gives until it gives nothing. `cut` bytes before it were left out; binary content goes in only
        with `raw`. Raises Full, OSError."""
        self.check()
        head = read(HEAD)
        binary = b"\0" in head
        if binary and not raw:
            self.lacks(name, BINARY)
            return
        name, before = self._own(name), self.masks.count
        digest, size = hashlib.sha256(), 0
        with self._guard(), self.zip.open(zipfile.ZipInfo(name, EPOCH), "w", force_zip64=True) as entry:
            for data in pieces(head, read) if binary else self._masked(head, read):
                entry.write(data)
                digest.update(data)
                size += len(data)
                self._take(len(data))
                if self.left <= 0 or time.monotonic() > self.until:
                    break
        self.entries.append({
            "name": name, "size": size, "sha256": digest.hexdigest(), "cut": cut, "binary": binary,
            "masked": self.masks.count - before,
        })  # fmt: skip

    def lacks(self, what: str, why: Text) -> None:
        if len(self.missing) < MOST_MISSING:
            self.missing.append({"what": what[:300], "why": [text[:500] for text in why]})

    # ---------- bounds ----------

    def check(self) -> None:
        """Raises Full where nothing more may be taken."""
        if time.monotonic() > self.until:
            raise Full(TOO_LONG)
        if self.left < LEAST or len(self.entries) >= MOST_ENTRIES:
            raise Full(TOO_MUCH)
        if self.path.parent.exists():
            disk = os.statvfs(self.path.parent)
            if disk.f_bavail * disk.f_frsize < SPARE:
                raise Full(NO_ROOM)

    def _take(self, n: int) -> None:
        self.left -= n

    def _guard(self) -> "_Room":
        return _Room()

    # ---------- lines ----------

    def _masked(self, head: bytes, read: Read) -> Iterator[bytes]:
        """The text with every line masked, some lines at a time; bytes that are no UTF-8 stay as they are."""
        held, rest = head, True
        while held or rest:
            while rest and len(held) < LINE:
                more = read(LINE)
                held, rest = held + more, bool(more)
            end = held.rfind(b"\n") + 1
            if end or not rest:
                lines, held = (held[:end], held[end:]) if end and rest else (held, b"")
                yield self._clean(lines)
            else:
                first, dropped = held[:LINE], len(held) - LINE
                held, line_end, more_dropped = self._drop(read)
                yield self._clean(first) + b" [%d bytes of this line left out]" % (dropped + more_dropped) + line_end

    def _drop(self, read: Read) -> tuple[bytes, bytes, int]:
        """What follows the end of a line that is too long, the end itself, how much was dropped."""
        dropped = 0
        while more := read(LINE):
            line, end, after = more.partition(b"\n")
            dropped += len(line)
            if end:
                return after, end, dropped
            if time.monotonic() > self.until:
                break
        return b"", b"", dropped

    def _clean(self, data: bytes) -> bytes:
        return self.masks.block(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    # ---------- the end ----------

    def close(self) -> Path:
        """Raises Full where the disk is full."""
        with self._guard():
            self.zip.writestr(INDEX, index(self.entries, self.missing))
            self.zip.close()
        return self.path

    def drop(self) -> None:
        """Give up what was written."""
        if self.zip.fp is not None:
            self.zip.fp.close()
            self.zip.fp = None
        self.path.unlink(missing_ok=True)

    def _own(self, name: str) -> str:
        """The name as any archive can hold it, with a number where it is taken."""
        name = shown(*name.split("/"))
        free, n = name, 1
        while free.lower() in self.names or free == INDEX:
            n += 1
            free = f"{name}~{n}"
        self.names.add(free.lower())
        return free


class _Room:
    """A full disk in our own words."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: Any, error: Any, _trace: Any) -> None:
        if isinstance(error, OSError) and error.errno in (28, 122):
            raise Full(NO_ROOM) from error


def index(entries: "list[dict[str, Any]]", missing: "list[dict[str, Any]]") -> str:
    return json.dumps({"entries": entries, "missing": missing}, ensure_ascii=True)


def bounded(file: IO[bytes], size: int) -> Read:
    """Reads at most `size` bytes, so that a file which grows has an end."""
    left = [max(0, size)]

    def read(n: int) -> bytes:
        data = file.read(min(n, left[0]))
        left[0] -= len(data)
        return data

    return read


def pieces(head: bytes, read: Read) -> Iterator[bytes]:
    while head:
        yield head
        head = read(LINE)


def only(path: Path, missing: "list[dict[str, Any]]") -> bytes:
    """A part that has nothing but reasons, made in memory, for a disk that takes nothing."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(INDEX, index([], missing))
    return memory.getvalue()
