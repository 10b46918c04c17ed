"""Parts of support bundles as they come from servers: taken piece by piece, read as what a stranger has made.

A server's part is taken only for the job that collects it, while that runs, up to what was asked for. What it says of
itself is bounded before it is kept; its files are never unpacked here.
"""

import base64
import binascii
import contextlib
import fcntl
import json
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _

from console import untrusted
from console.errors import Conflict, ConsoleError, Invalid, NotAllowed
from deployments.agent.support import INDEX
from deployments.agent.support.files import shown
from deployments.agent.support.send import PIECE, TOLD
from deployments.models import Attempt, PartState, Server, SupportPart
from deployments.models.job import ENDED
from deployments.services import support_bundles, told

MOST_ENTRIES = 4100
MOST_INDEX = 8 << 20
MOST_FILE = 4 << 30
SPARE = 2 << 30  # bytes that stay free for the console itself
SHA256 = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"[0-9a-f]{32}\.zip")
UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError, NotImplementedError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
BAD = ("送来的内容无法读取", "what was sent cannot be read")


def find(server: Server, attempt: str, source: str) -> SupportPart:
    """The part that this attempt collects. Raises NotAllowed where none is asked of this server just now."""
    job = Attempt.objects.filter(pk=attempt[:40], job__server=server, job__kind=support_bundles.KIND)
    job = job.exclude(state__in=ENDED).exclude(job__state__in=ENDED)
    part = SupportPart.objects.filter(
        job__in=job.values("job"), source=source[:20], server=server
    ).select_related("bundle", "job").first()  # fmt: skip
    if part is None:
        raise NotAllowed(
            _("No support bundle asks for this just now."), _("Make a new support bundle."), code="not_asked"
        )
    return part


def receive(server: Server, attempt: str, source: str, begin: int, size: int, data: bytes) -> int:
    """The next bytes of a part that will have `size`; how many are there then. Without bytes it only says that.

    Raises ConsoleError.
    """
    part = find(server, attempt, source)
    path = support_bundles.path_of(part)
    if part.state == PartState.ARRIVED:
        return size
    _check_size(part, size)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _held(path):
        coming = path.with_suffix(".coming")
        here = coming.stat().st_size if coming.exists() else 0
        if here > size:
            coming.unlink()  # of another try
            here = 0
        if not data or begin != here:
            return here
        if len(data) > PIECE or here + len(data) > size:
            raise Invalid(_("More comes than was said."), _("Make a new support bundle."), code="too_long")
        _append(coming, data)
        here += len(data)
        if here == size:
            coming.replace(path)
            take(part, path)
        else:
            SupportPart.objects.filter(pk=part.pk).update(here=here, bytes=size)
            support_bundles.tell(part.bundle_id)
    return here


def _check_size(part: SupportPart, size: int) -> None:
    """Raises Invalid where it is more than was asked for, or there is no room."""
    asked = part.job.params.get("most_mb") if part.job else None
    most = ((asked if isinstance(asked, int) else support_bundles.SOURCE_MB) + 16) << 20
    if not 0 < size <= most:
        raise Invalid(
            _("A part may have at most %(most)s MiB.") % {"most": most >> 20},
            _("Make a new support bundle."),
            code="too_long",
        )
    store = support_bundles.root()
    store.mkdir(parents=True, exist_ok=True)
    if support_bundles.taken() - part.bytes + size > settings.SUPPORT_BUNDLES_GB * 10**9:
        raise _no_room(_("Support bundles take all of SUPPORT_BUNDLES_GB."))
    if shutil.disk_usage(store).free < size + SPARE:
        raise _no_room(_("The console's disk has too little room left."))


def _no_room(what: str) -> Invalid:
    return Invalid(what, _("Delete old support bundles, then collect again."), code="no_room", status=507)


def _append(path: Path, data: bytes) -> None:
    """Raises Invalid where the disk is full: nothing half stays behind what was told."""
    before = path.stat().st_size if path.exists() else 0
    try:
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.truncate(path, before)
        raise _no_room(_("The console cannot write it (%(words)s).") % {"words": os.strerror(error.errno or 5)}) from (
            error
        )


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """One writer at a time, whatever process. Raises Conflict, which is tried again."""
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise Conflict(_("Another call sends this part."), _("Try again."), code="busy", status=503) from error
    finally:
        os.close(descriptor)


@told.handles(TOLD)
def _told(attempt: Attempt, data: dict[str, Any]) -> None:
    """A part of the console's own machine, from the inbox, or of a simulated server, which tells it as it is."""
    try:
        part = find(attempt.job.server, attempt.pk, str(data.get("source", "")))
    except ConsoleError:
        return
    path = support_bundles.path_of(part)
    path.parent.mkdir(parents=True, exist_ok=True)
    if attempt.job.server.simulated:
        path.write_bytes(_unpacked(data.get("zip")))
    else:
        name = str(data.get("inbox", ""))
        if not attempt.job.server.is_local or not NAME.fullmatch(name):
            return
        (support_bundles.inbox() / name).replace(path)
    take(part, path)


def _unpacked(text: Any) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError):
        return b""


# ---------- what is in it ----------


def take(part: SupportPart, path: Path) -> None:
    """Note what the zip holds; one that cannot be read is dropped, and its part says so."""
    try:
        entries, missing = read(path)
        part.state, part.why, part.bytes = PartState.ARRIVED, None, path.stat().st_size
        part.entries, part.missing = entries, missing
    except UNREADABLE:
        path.unlink(missing_ok=True)
        part.state, part.why, part.bytes, part.entries, part.missing = PartState.MISSING, list(BAD), 0, [], []
    part.here, part.arrived_at = part.bytes, timezone.now()
    part.save()
    support_bundles.tell(part.bundle_id)


def read(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The files and what is missing, as the zip says, within bounds. Raises ValueError and what zipfile raises."""
    with zipfile.ZipFile(path) as packed:
        infos = packed.infolist()
        check(infos, path.stat().st_size)
        index = packed.getinfo(INDEX)
        if index.file_size > MOST_INDEX:
            raise ValueError("its index is too long")
        with packed.open(index) as file:
            said = json.loads(file.read(MOST_INDEX + 1))
    told_of = {one["name"]: one for one in said.get("entries", []) if isinstance(one, dict) and "name" in one}
    entries = [_entry(info, told_of.get(info.filename, {})) for info in infos if info.filename != INDEX]
    return entries, [one for row in said.get("missing", [])[:500] if (one := _missing(row))]


def check(infos: list[zipfile.ZipInfo], size: int) -> None:
    """Raises ValueError for a zip that our agents do not write."""
    if len(infos) > MOST_ENTRIES:
        raise ValueError("too many files")
    names = [info.filename for info in infos]
    if len(set(names)) < len(names) or any(not is_safe(name) for name in names):
        raise ValueError("a name is not safe")
    if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in infos):
        raise ValueError("packed in another way")
    if any(info.flag_bits & 1 or info.file_size > MOST_FILE for info in infos):
        raise ValueError("encrypted, or too large")
    if sum(info.compress_size for info in infos) > size:
        raise ValueError("its files overlap")


def is_safe(name: str) -> bool:
    """Whether an archive may hold the name below a folder of ours."""
    return name == INDEX or (name == shown(*name.split("/")) and ".." not in name.split("/") and len(name) < 900)


def _entry(info: zipfile.ZipInfo, said: dict[str, Any]) -> dict[str, Any]:
    digest = str(said.get("sha256", ""))
    return {
        "name": untrusted.text(info.filename, 900), "size": info.file_size,
        "sha256": digest if SHA256.fullmatch(digest) else "", "cut": untrusted.whole(said.get("cut"), 1 << 53) or 0,
        "binary": said.get("binary") is True, "masked": untrusted.whole(said.get("masked"), 1 << 40) or 0,
    }  # fmt: skip


def _missing(row: Any) -> dict[str, Any] | None:
    if not isinstance(row, dict) or not isinstance(row.get("why"), list) or len(row["why"]) != 2:
        return None
    why = [untrusted.text(str(text), 500) for text in row["why"]]
    return {"what": untrusted.text(str(row.get("what", "")), 300), "why": why}
