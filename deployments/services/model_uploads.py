"""Models that people upload through the browser: in pieces, resumable, kept below VAR_DIR/uploads until a server has
fetched them.

Each upload is a folder: `upload.json` says what is to come, `files/` holds what has. A file's digest is noted when its
last byte is there; a server that fetches it compares.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from console import audit
from console.errors import Conflict, Invalid, NotFound
from console.language import pick
from console.models import User
from deployments.artifacts import BadModel
from deployments.artifacts.sources import File
from deployments.artifacts.sources.names import choose
from deployments.models import Job, Server
from deployments.models.job import ENDED
from deployments.services import jobs

PIECE = 4 << 20  # bytes of one call; console/bodies.py lets twice that through
READ = 1 << 20
SPARE = 2 << 30  # bytes that stay free for the console itself
MOST_FILES = 2000
MOST_NAME = 100
FETCH = ("download", "download_look")
ID = re.compile(r"[0-9a-f]{16}")
NAME = re.compile(r"[\w][\w.+-]{0,99}")

# (upload, file) -> (bytes so far, their SHA-256), so that the end of a large file needs no second reading.
_digests: dict[tuple[str, int], tuple[int, Any]] = {}


@dataclass(frozen=True)
class Coming:
    """One file: `here` are the bytes that have come, `sha256` is '' until it is whole."""

    name: str
    size: int
    here: int
    sha256: str


@dataclass(frozen=True)
class Upload:
    id: str
    name: str
    by: str
    begun_at: float
    files: tuple[Coming, ...]

    @property
    def folder(self) -> Path:
        return root() / self.id

    @property
    def size(self) -> int:
        return sum(one.size for one in self.files)

    @property
    def here(self) -> int:
        return sum(one.here for one in self.files)

    @property
    def is_whole(self) -> bool:
        return all(one.sha256 for one in self.files)


def root() -> Path:
    return Path(settings.VAR_DIR) / "uploads"


def present() -> list[Upload]:
    """All, the newest first; what cannot be read is left out."""
    found = [one for path in root().glob("*/upload.json") if (one := _read(path.parent))]
    return sorted(found, key=lambda one: -one.begun_at)


def find(upload: str) -> Upload:
    """Raises NotFound."""
    found = _read(root() / upload) if ID.fullmatch(upload) else None
    if found is None:
        raise NotFound(
            _("There is no upload “%(id)s”.") % {"id": upload[:20]},
            _("Choose one of the page “Upload a model”, or begin a new one."),
            code="no_such_upload",
        )
    return found


def find_whole(upload: str) -> Upload:
    """Raises NotFound, and Conflict where something is still to come."""
    found = find(upload)
    if not found.is_whole:
        raise Conflict(
            _("The upload “%(name)s” is not whole yet.") % {"name": found.name},
            _("Choose the same files again on its page; it goes on where it was."),
            code="upload_open",
        )
    return found


def begin(name: str, files: Sequence[tuple[str, int]], *, by: User, pickles: bool = False) -> Upload:
    """A new upload, or the open one of the same person with the same name and files. Raises ConsoleError."""
    jobs.check_may_operate(by)
    _check(name, files, pickles)
    root().mkdir(parents=True, exist_ok=True)
    with _alone():
        return _begun(name, files, by)


def _begun(name: str, files: Sequence[tuple[str, int]], by: User) -> Upload:
    wanted = [[one, size] for one, size in files]
    for known in present():
        if (known.name, known.by) == (name, by.username) and [[one.name, one.size] for one in known.files] == wanted:
            return known
    _check_room(sum(size for _name, size in files))
    folder = root() / secrets.token_hex(8)
    (folder / "files").mkdir(parents=True)
    rows = [{"name": one, "size": size, "sha256": ""} for one, size in files]
    _write(folder, {"name": name, "by": by.username, "begun_at": time.time(), "files": rows})
    audit.record(by, "upload.begun", by, upload=folder.name, name=name, bytes=sum(size for _n, size in files))
    for n, (_name, size) in enumerate(files):
        if not size:
            put(find(folder.name), n, 0, b"", by=by)
    return find(folder.name)


def _check(name: str, files: Sequence[tuple[str, int]], pickles: bool) -> None:
    """Raises Invalid."""
    if not NAME.fullmatch(name):
        raise Invalid(
            _("“%(name)s” cannot be the name of a model's folder.") % {"name": name[:MOST_NAME]},
            _("Use letters, digits, . _ + and -, at most 100."),
            code="bad_name",
        )
    if not 0 < len(files) <= MOST_FILES or any(not 0 <= size < 1 << 50 for _name, size in files):
        raise Invalid(
            _("Choose between 1 and %(most)s files.") % {"most": MOST_FILES},
            _("Choose the folder of the model itself."),
            code="bad_files",
        )
    try:
        left = choose([File(one, size) for one, size in files], pickles=pickles).left
    except BadModel as error:
        raise Invalid(pick(error.text), _("Choose other files, then try again."), code="bad_files") from error
    if left:
        raise Invalid(
            _("%(name)s is not taken (%(n)s in all).") % {"name": left[0][0][:200], "n": len(left)},
            _("Leave pickles and files of version control out, or allow pickles if you trust who made them."),
            code="bad_files",
        )


def _check_room(wanted: int) -> None:
    """Raises Invalid where the quota or the disk lacks the room."""
    others = present()
    taken, open_ = sum(one.size for one in others), sum(one.size - one.here for one in others)
    quota, free = settings.MODEL_UPLOAD_GB * 10**9, shutil.disk_usage(root()).free
    if taken + wanted > quota:
        raise Invalid(
            _("Uploads may take %(quota)s GB, and %(taken)s GB are taken.")
            % {"quota": settings.MODEL_UPLOAD_GB, "taken": taken // 10**9},
            _("Delete uploads that servers have fetched, or set MODEL_UPLOAD_GB."),
            code="upload_quota",
        )
    if open_ + wanted + SPARE > free:
        raise Invalid(
            _("The console's disk has %(free)s GB free, which is too little.") % {"free": free // 10**9},
            _("Make room there, or put the files on a shared path."),
            code="no_room",
        )


def put(upload: Upload, n: int, begin: int, data: bytes, *, by: User) -> Upload:
    """The next bytes of file number `n`, from who began it. Raises ConsoleError; a Conflict names where it stands."""
    jobs.check_may_operate(by)
    if upload.by != by.username:  # what servers fetch under a person's name is that person's
        raise _not_yours(upload)
    if not 0 <= n < len(upload.files):
        raise NotFound(_("This upload has no such file."), _("Begin it anew."), code="no_such_file")
    with _held(upload.folder):
        upload = find(upload.id)
        one = upload.files[n]
        if begin != one.here or one.sha256:
            raise Conflict(
                _("%(here)s bytes of that file are here.") % {"here": one.here}, _("Go on there."), code="upload_offset"
            )
        if begin + len(data) > one.size or len(data) > PIECE:
            raise Invalid(_("More comes than was said."), _("Begin the upload anew."), code="too_long")
        path = upload.folder / "files" / one.name
        _append(path, begin, data)
        digest = _digest(upload.id, n, path, begin, data)
        if begin + len(data) == one.size:
            _digests.pop((upload.id, n), None)
            _note_whole(upload, n, digest, by)
    return find(upload.id)


def _append(path: Path, begin: int, data: bytes) -> None:
    """Raises Invalid where the disk is full: nothing half stays behind the byte that was told."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.truncate(begin)
            file.write(data)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.truncate(path, begin)
        raise Invalid(
            _("The console cannot write it (%(words)s).") % {"words": os.strerror(error.errno or 0)},
            _("Make room on the console's disk, then go on."),
            code="no_room",
            status=507,
        ) from error


def _digest(upload: str, n: int, path: Path, begin: int, data: bytes) -> str:
    at, digest = _digests.get((upload, n), (0, None))
    if digest is None or at != begin:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            left = begin
            while left and (piece := file.read(min(READ, left))):
                digest.update(piece)
                left -= len(piece)
    digest.update(data)
    _digests[upload, n] = (begin + len(data), digest)
    while len(_digests) > 200:
        _digests.pop(next(iter(_digests)))
    return str(digest.hexdigest())


def _note_whole(upload: Upload, n: int, sha256: str, by: User) -> None:
    told = json.loads((upload.folder / "upload.json").read_bytes())
    told["files"][n]["sha256"] = sha256
    _write(upload.folder, told)
    if all(row["sha256"] for row in told["files"]):
        audit.record(by, "upload.whole", by, upload=upload.id, name=upload.name)


def delete(upload: Upload, *, by: User) -> None:
    """Raises ConsoleError."""
    jobs.check_may_operate(by)
    if upload.by != by.username and not by.may("administrator"):
        raise _not_yours(upload)
    with _held(upload.folder):
        shutil.rmtree(upload.folder, ignore_errors=True)
    audit.record(by, "upload.deleted", by, upload=upload.id, name=upload.name)


def _not_yours(upload: Upload) -> Conflict:
    return Conflict(
        _("%(by)s began this upload.") % {"by": upload.by}, _("Ask them, or an administrator."), code="not_yours"
    )


def is_for(server: Server, upload: str) -> bool:
    """Whether an open job of that server fetches it: nobody else's business is what people upload."""
    open_ = Job.objects.filter(server=server, kind__in=FETCH).exclude(state__in=ENDED)
    return open_.filter(params__source="upload", params__model=upload).exists()


def file_of(upload: str, name: str) -> Path:
    """A whole file of a whole upload, its list for ''. Raises NotFound, Conflict."""
    found = find_whole(upload)
    if not name:
        return found.folder / "upload.json"
    if name not in {one.name for one in found.files}:
        raise NotFound(_("This upload has no such file."), _("Queue the download anew."), code="no_such_file")
    return found.folder / "files" / name


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One beginning at a time, whatever process: else two could both take the last room."""
    descriptor = os.open(root() / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """One writer at a time, whatever process. Raises Conflict."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NotFound(_("This upload is gone."), _("Begin it anew."), code="no_such_upload") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise Conflict(
            _("Another window is sending this upload."), _("Close it, then try again."), code="upload_busy"
        ) from error
    finally:
        os.close(descriptor)


def _write(folder: Path, data: dict[str, Any]) -> None:
    new = folder / "upload.json.new"
    new.write_text(json.dumps(data, ensure_ascii=False))
    new.replace(folder / "upload.json")


def _read(folder: Path) -> Upload | None:
    try:
        told = json.loads((folder / "upload.json").read_bytes())
        files = tuple(
            Coming(row["name"], row["size"], _size(folder / "files" / row["name"]), row["sha256"])
            for row in told["files"]
        )
        return Upload(folder.name, told["name"], told["by"], told["begun_at"], files)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def as_json(upload: Upload) -> dict[str, Any]:
    return {
        "id": upload.id,
        "name": upload.name,
        "by": upload.by,
        "size": upload.size,
        "here": upload.here,
        "whole": upload.is_whole,
        "piece": PIECE,
        "files": [
            {"n": n, "name": one.name, "size": one.size, "here": one.here, "sha256": one.sha256 or None}
            for n, one in enumerate(upload.files)
        ],
    }
