"""The archive of a support bundle, put together while it is sent: every file as it came, and an index page on top.

What servers packed is passed on as it is, not packed anew, so that a download costs no more than reading the disk.
"""

import json
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, Any, cast

from asgiref.sync import sync_to_async
from django.template.loader import render_to_string
from django.utils import timezone

from console import audit
from console.language import pick
from console.models import User
from deployments.agent.support import INDEX
from deployments.models import PartState, Server, SupportBundle
from deployments.services import jobs, support_bundles, support_own, support_parts
from deployments.services.support_bundles import Row

PIECE = 1 << 20
EPOCH = (1980, 1, 1, 0, 0, 0)
LOCAL_HEADER = 30


def file_name(bundle: SupportBundle) -> str:
    case = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in bundle.case_number).strip("-")
    return f"ascend-support-{bundle.pk}{'-' + case if case else ''}.zip"


def download(bundle: SupportBundle, *, by: User) -> AsyncIterator[bytes]:
    """The archive in pieces. Raises NotAllowed."""
    jobs.check_may_operate(by)
    audit.record(by, "support_bundle.downloaded", bundle, case_number=bundle.case_number)
    return _awaited(stream(bundle))


async def _awaited(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """A sync iterator would be read whole before the first byte under ASGI."""
    following = sync_to_async(lambda: next(pieces, None))
    while (piece := await following()) is not None:
        yield piece


def stream(bundle: SupportBundle) -> Iterator[bytes]:
    """The archive in pieces; what has arrived by now is in it."""
    sink = _Sink()
    found = support_bundles.rows(bundle)
    masks = support_own.masks_of(bundle, _servers(found))
    with zipfile.ZipFile(cast("IO[bytes]", sink), "w", zipfile.ZIP_DEFLATED) as archive:
        for row in found:
            if row.state != PartState.ARRIVED:
                continue
            try:
                for _copied in _copy(archive, support_bundles.path_of(row.part), folder(row, masks.name)):
                    yield sink.taken()
            except (OSError, ValueError, zipfile.BadZipFile):
                continue  # the index names it, and that its files are not there can be seen
        archive.writestr(zipfile.ZipInfo("index.json", EPOCH), json.dumps(told(bundle, found, masks.name), indent=1))
        archive.writestr(zipfile.ZipInfo("index.html", EPOCH), page(bundle, found, masks.name))
    yield sink.taken()


def folder(row: Row, name_of: Any) -> str:
    server = row.part.server_name
    return f"{name_of(server)}/{row.part.source}" if server else support_bundles.CONSOLE


def _servers(found: list[Row]) -> list[Server]:
    return list({row.part.server.pk: row.part.server for row in found if row.part.server}.values())


def _copy(archive: zipfile.ZipFile, path: Path, below: str) -> Iterator[None]:
    """Every file of a part below that folder, packed as it is. Yields after each piece. Raises OSError, ValueError,
    BadZipFile."""
    with path.open("rb") as file, zipfile.ZipFile(file) as packed:
        infos = packed.infolist()
        support_parts.check(infos, path.stat().st_size)
        for info in infos:
            if info.filename != INDEX:
                for data in _entry(archive, file, info, f"{below}/{info.filename}"):
                    archive.fp.write(data)  # type: ignore[union-attr]
                    yield


def _entry(archive: zipfile.ZipFile, file: IO[bytes], info: zipfile.ZipInfo, name: str) -> Iterator[bytes]:
    """The header and the packed bytes of a file, which is noted in the archive's directory before."""
    file.seek(info.header_offset)
    header = file.read(LOCAL_HEADER)
    if header[:4] != b"PK\x03\x04":
        raise ValueError("there is no file where the directory says")
    begin = info.header_offset + LOCAL_HEADER + int.from_bytes(header[26:28], "little")
    begin += int.from_bytes(header[28:30], "little")
    own = zipfile.ZipInfo(name, EPOCH)
    own.compress_type, own.CRC = info.compress_type, info.CRC
    own.compress_size, own.file_size = info.compress_size, info.file_size
    own.external_attr, own.header_offset = 0o644 << 16, archive.fp.tell()  # type: ignore[union-attr]
    archive.filelist.append(own)
    archive.NameToInfo[name] = own
    yield own.FileHeader()
    file.seek(begin)
    left = info.compress_size
    while left:
        data = file.read(min(PIECE, left))
        if not data:
            raise ValueError("the part is cut off")
        left -= len(data)
        yield data


class _Sink:
    """What is written is held until it is taken; it has no place to go back to."""

    def __init__(self) -> None:
        self.held: list[bytes] = []

    def write(self, data: Any) -> int:
        self.held.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def taken(self) -> bytes:
        data, self.held = b"".join(self.held), []
        return data


# ---------- the index ----------


def told(bundle: SupportBundle, found: list[Row], name_of: Any) -> dict[str, Any]:
    """What the index says, for programs; both languages."""
    return {
        "bundle": bundle.pk, "case_number": bundle.case_number, "note": bundle.note,
        "about": [_masked(text, bundle, found) for text in bundle.about.get("title", ["", ""])],
        "seen_at": bundle.seen_at.isoformat(), "made_at": bundle.created_at.isoformat(),
        "packed_at": timezone.now().isoformat(), "hosts": bundle.hosts,
        "parts": [
            {
                "folder": folder(row, name_of), "server": name_of(row.part.server_name) if row.part.server_name else "",
                "source": row.part.source, "title": list(row.title), "state": row.state,
                "why": list(row.why) if row.why else None,
                "files": [{**one, "path": f"{folder(row, name_of)}/{one['name']}"} for one in row.part.entries],
                "missing": row.part.missing,
            }
            for row in found
        ],
    }  # fmt: skip


def _masked(text: str, bundle: SupportBundle, found: list[Row]) -> str:
    return support_own.masks_of(bundle, _servers(found)).line(str(text))


def page(bundle: SupportBundle, found: list[Row], name_of: Any) -> str:
    """The index page: static, for any browser, both languages."""
    return render_to_string("deployments/support_index.html", {"told": told(bundle, found, name_of)})


def title_of(bundle: SupportBundle) -> str:
    return pick(bundle.about.get("title")) or f"#{bundle.pk}"
