"""The folder of one attempt on a server's disk: its claim, its lines, and how they are read and kept.

`<state>/attempts/<attempt>/` holds `spec.json` (the signed payload, byte for byte: the claim), `lock` (held by the
runner for life), `pid` (the runner's identity), `step` (the step it is at), `cancel`, `reboot` (`reboots.py`), `lines`,
and `shipped` (every line is with the console).

A record of `lines` is `<epoch_ms>\\t<kind>\\t<text>\\n` in UTF-8, with at most 32 KB of text.
"""

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments import locks
from deployments.agent import processes

MAX_TEXT = 32 * 1024
MAX_CHUNK = 64 * 1024
ATTEMPT_ID = re.compile(r"a\d{1,18}-\d{1,6}-[0-9a-f]{8}")
PIECE_ID = re.compile(
    r"(?:e\d{1,18}-|g)\d{1,9}"
)  # of a log of an engine (`engines/folder.py`) or of the agent (`own_log.py`)
NEW = ".new-"
LOOK_AGAIN = "look-again"  # in the state folder: a job has changed what facts tell
NO_ROOM = 75  # exit code of a runner that could not begin on a full disk, and left everything as it was
HEADER = re.compile(rb"\d{1,20}\t[osepgv+]\t")


def is_attempt_id(name: str) -> bool:
    return ATTEMPT_ID.fullmatch(name) is not None


def record(kind: str, text: str, at: float | None = None) -> bytes:
    """One record; `text` holds no line end and at most MAX_TEXT bytes."""
    return f"{int((time.time() if at is None else at) * 1000)}\t{kind}\t{text}\n".encode()


def event(name: str, **fields: Any) -> str:
    """The text of an event record."""
    return json.dumps({"e": name, **fields}, ensure_ascii=False, separators=(",", ":"))


def claim(attempts: Path, attempt: str, body: str, records: bytes = b"") -> str:
    """Make the folder of an attempt, once: "claimed", "already" (by the same body) or "other" (by another one).

    With `records` the attempt has ended before it began: they become its lines and no runner is ever started for it.
    The folder appears complete or not at all, also after a power cut: written aside, synced, renamed.
    """
    final = attempts / attempt
    if final.exists():
        return _holder(final, body)
    aside = attempts / f"{NEW}{attempt}-{os.getpid()}-{time.monotonic_ns()}"
    aside.mkdir(parents=True, mode=0o700)
    try:
        _write_synced(aside / "spec.json", body.encode())
        if records:
            _write_synced(aside / "lines", records)
        _sync_folder(aside)
    except OSError:  # no room: the same payload comes again
        shutil.rmtree(aside, ignore_errors=True)
        raise
    try:
        aside.rename(final)
    except OSError:  # another claim was faster: a folder that is not empty is never replaced
        shutil.rmtree(aside, ignore_errors=True)
        if not final.exists():
            raise
        return _holder(final, body)
    _sync_folder(attempts)
    return "claimed"


def _holder(folder: Path, body: str) -> str:
    try:
        return "already" if (folder / "spec.json").read_bytes() == body.encode() else "other"
    except OSError:
        return "other"


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes) -> None:
    """Replace a small file so that a reader sees the old or the new one, never a part."""
    aside = path.with_name(f"{path.name}.new")
    aside.write_bytes(data)
    aside.replace(path)


def write_synced(path: Path, data: bytes, mode: int = 0o600) -> None:
    """The same, and on the disk when it returns: neither a kill nor a power cut brings the old one back."""
    aside = path.with_name(f".{path.name}.new")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    aside.replace(path)
    _sync_folder(path.parent)


def folders(attempts: Path, named: re.Pattern[str] = ATTEMPT_ID) -> list[Path]:
    """Folders of claimed attempts, sorted by name; what is not named like an attempt is left out."""
    try:
        names = [entry.name for entry in os.scandir(attempts) if named.fullmatch(entry.name)]
    except FileNotFoundError:
        return []
    return [attempts / name for name in sorted(names)]


def runner_identity(folder: Path) -> processes.Identity | None:
    """Who runs or ran the attempt; None before a runner has begun."""
    try:
        fields = json.loads((folder / "pid").read_text())
        return processes.Identity(int(fields["pid"]), int(fields["started"]), str(fields["boot_id"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_alive(folder: Path) -> bool:
    """Whether the attempt's runner lives: it holds the lock for life."""
    return locks.is_locked(folder / "lock")


def has_begun(folder: Path) -> bool:
    """Whether a runner has or had this attempt.

    Looked for in the order in which these follow each other: `pid` goes after `shipped` has come, and `lines` becomes
    `shipped`. In another order, all of them could be missed while the link frees the folder.
    """
    return any((folder / name).exists() for name in ("pid", "lines", "shipped"))


def is_over(folder: Path) -> bool:
    """Whether the attempt has ended, its lines still here or with the console; in this order, for the same reason."""
    return has_ended(folder) or (folder / "shipped").exists()


def has_ended(folder: Path) -> bool:
    """Whether the last record of the lines is the `ended` event."""
    try:
        with (folder / "lines").open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_TEXT - 64))
            last = file.read().rpartition(b"\n")
    except OSError:
        return False
    if last[2]:  # a record that was cut
        return False
    return b'\tv\t{"e":"ended"' in last[0].rpartition(b"\n")[2]


def said(folder: Path) -> dict[tuple[str, int], str]:
    """{(name, step number): state, '' where it tells none} of every event about a step that stands in the lines."""
    found = {}
    with contextlib.suppress(FileNotFoundError), (folder / "lines").open("rb") as file:
        for line in file:
            parts = line.split(b"\t", 2)
            if len(parts) != 3 or parts[1] != b"v" or not line.endswith(b"\n"):
                continue
            with contextlib.suppress(ValueError, KeyError, TypeError):  # an event about no step, or a damaged one
                fields = json.loads(parts[2])
                found[str(fields["e"]), int(fields["n"])] = str(fields.get("state") or "")
    return found


@dataclass(frozen=True)
class Chunk:
    """Whole records from line `first` on: `n` of them, bytes `b0` to `b1` of the file."""

    first: int
    n: int
    b0: int
    b1: int
    raw: bytes

    @property
    def is_last(self) -> bool:
        return self.raw.rpartition(b"\n")[0].rpartition(b"\n")[2].find(b'\tv\t{"e":"ended"') >= 0


class SpoolReader:
    """Reads the lines of one attempt in chunks, from any line whose byte offset is known."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lines"
        self.descriptor: int | None = None

    def size(self) -> int:
        """Bytes written so far; 0 before the first."""
        if self.descriptor is None:
            try:
                self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return 0
        return os.fstat(self.descriptor).st_size

    def chunk(self, line: int, byte: int) -> Chunk | None:
        """The next whole records from there, at most MAX_CHUNK bytes; None where there is no whole one yet."""
        if self.size() <= byte or self.descriptor is None:
            return None
        raw = os.pread(self.descriptor, MAX_CHUNK, byte)
        raw = raw[: raw.rfind(b"\n") + 1]
        return Chunk(line, raw.count(b"\n"), byte, byte + len(raw), raw) if raw else None

    def chunks(self) -> Iterator[Chunk]:
        """All of them from the first line on."""
        line, byte = 1, 0
        while chunk := self.chunk(line, byte):
            yield chunk
            line, byte = line + chunk.n, chunk.b1

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def mend_tail(path: Path) -> None:
    """Make the file end with a whole record, after a writer that died in the middle of one.

    A cut event never happened and goes; of a cut line what was written is kept. Only for who holds the lock.
    """
    try:
        data = path.read_bytes()[-(MAX_TEXT + 64) :]
    except FileNotFoundError:
        return
    tail = data.rpartition(b"\n")[2]
    if not tail:
        return
    size = path.stat().st_size
    header = HEADER.match(tail)
    keep = b""
    if header and b"\tv\t" not in header[0]:
        keep = tail.decode(errors="ignore").encode() + b"\n"
    with path.open("r+b") as file:
        file.truncate(size - len(tail))
        file.seek(0, os.SEEK_END)
        file.write(keep)


def mark_shipped(folder: Path) -> None:
    """The console has every line: keep the claim, against the same payload coming again, and free the rest."""
    lines, mark = folder / "lines", folder / "shipped"
    if not mark.exists() and lines.exists():  # renaming needs no room, so this works on a full disk too
        lines.replace(mark)
        os.truncate(mark, 0)
    elif not mark.exists():
        mark.touch()
    for entry in list(folder.iterdir()):
        if entry.name in ("spec.json", "shipped"):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


CLAIM_MARGIN_S = 24 * 3600
HALF_MADE_S = 3600


def purge(attempts: Path, redis_now: float) -> int:
    """Remove shipped attempts whose payload is no longer valid by Redis's clock; returns how many."""
    removed = 0
    for folder in folders(attempts):
        if (folder / "shipped").exists() and _expires(folder) + CLAIM_MARGIN_S < redis_now:
            shutil.rmtree(folder, ignore_errors=True)
            removed += 1
    for aside in attempts.glob(f"{NEW}*"):  # of a claim that was cut short
        if time.time() - aside.stat().st_mtime > HALF_MADE_S:
            shutil.rmtree(aside, ignore_errors=True)
    return removed


def _expires(folder: Path) -> float:
    try:
        return float(json.loads((folder / "spec.json").read_text())["not_after"])
    except (OSError, ValueError, KeyError, TypeError):
        return float("inf")
