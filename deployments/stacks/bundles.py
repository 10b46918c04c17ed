"""The format of an offline bundle: a folder with `manifest.json` and parts, which joined are one tar of wheels.

The parts have a size that fits a stick or a disc; the manifest has a digest for each part and for each wheel, so that
a part that was damaged on its way is named before anything is unpacked. Nothing in it is trusted but what its digest
says: names are plain file names, and what the manifest does not list is refused. Plain code: servers read it too.
"""

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

FORMAT = 1
MANIFEST, WHEELS = "manifest.json", "wheels"
MOST_FILES, MOST_BYTES = 2000, 64 << 30
MAX_MANIFEST = 2 << 20
CHUNK = 1 << 20
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,199}\.whl", re.ASCII)
PART = re.compile(r"part-\d{3,5}", re.ASCII)
DIGEST = re.compile(r"[0-9a-f]{64}")
WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)


class BadBundle(ValueError):
    """What is wrong with a bundle and what to do, in one or two sentences."""


def name_of(manifest: Mapping[str, Any]) -> str:
    return f"{manifest['stack']}-{manifest['arch']}-py{manifest['python']}"


# ---------- the manifest ----------


def read_manifest(data: bytes) -> dict[str, Any]:
    """The manifest, every field as it is to be. Raises BadBundle."""
    try:
        made = json.loads(data)
    except (ValueError, RecursionError):
        raise BadBundle(f"{MANIFEST} is no JSON, or was cut off. Copy it again.") from None
    if not isinstance(made, dict) or made.get("format") != FORMAT:
        raise BadBundle(f"{MANIFEST} is not of format {FORMAT}. Make the bundle with this version of the console.")
    words = {name: made.get(name) for name in ("stack", "arch", "python")}
    for name, value in words.items():
        if not isinstance(value, str) or not WORD.fullmatch(value):
            raise BadBundle(f"{MANIFEST} lacks “{name}”, or it is no plain word. Make the bundle again.")
    _check_rows(made.get("files"), FILE, "files", MOST_FILES)
    _check_rows(made.get("parts"), PART, "parts", MOST_FILES)
    if sum(row["size"] for row in made["files"].values()) > MOST_BYTES:
        raise BadBundle(f"{MANIFEST} names more than {MOST_BYTES >> 30} GB of wheels.")
    return made


def _check_rows(rows: Any, names: "re.Pattern[str]", what: str, most: int) -> None:
    """{name: {size, sha256}}. Raises BadBundle."""
    if not isinstance(rows, dict) or not rows or len(rows) > most:
        raise BadBundle(f"{MANIFEST} lists no {what}, or more than {most}. Make the bundle again.")
    for name, row in rows.items():
        if not names.fullmatch(name):
            raise BadBundle(f"{MANIFEST} names “{name[:80]}” among its {what}, which is no plain name of one. Refused.")
        size, digest = (row.get("size"), row.get("sha256")) if isinstance(row, dict) else (None, None)
        whole = isinstance(size, int) and not isinstance(size, bool) and size >= 0
        if not whole or not isinstance(digest, str) or not DIGEST.fullmatch(digest):
            raise BadBundle(f"{MANIFEST} has no size and digest for {name}. Make the bundle again.")


def manifest_in(folder: Path) -> bytes:
    """The bytes of a bundle's manifest. Raises BadBundle."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            data = file.read(MAX_MANIFEST + 1)
    except OSError as error:
        raise BadBundle(f"{folder} holds no {MANIFEST} that can be read ({error.strerror}). Name the folder of a "
                        "bundle.") from error  # fmt: skip
    if len(data) > MAX_MANIFEST:
        raise BadBundle(f"{MANIFEST} is longer than 2 MB. That is no bundle of ours.")
    return data


# ---------- parts ----------


def check_parts(folder: Path, manifest: Mapping[str, Any], told: Callable[[str], None] = lambda _line: None) -> None:
    """Raises BadBundle naming the first part that is missing, short or damaged."""
    for n, (name, row) in enumerate(sorted(manifest["parts"].items()), 1):
        told(f"{name} ({n} of {len(manifest['parts'])})")
        path = folder / name
        if not path.is_file():
            raise BadBundle(f"{name} is missing. Copy it into {folder}, then try again.")
        if (size := path.stat().st_size) != row["size"]:
            raise BadBundle(f"{name} has {size} bytes instead of {row['size']}: it was cut off. Copy it again.")
        if digest_of(path) != row["sha256"]:
            raise BadBundle(f"{name} is damaged: its digest is another. Copy it again.")


def digest_of(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            found.update(piece)
    return found.hexdigest()


class Joined(io.RawIOBase):
    """The parts as one stream."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = iter(paths)
        self.file: IO[bytes] | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self.file is None:
                path = next(self.paths, None)
                if path is None:
                    return 0
                self.file = path.open("rb")
            count = self.file.readinto(buffer)  # type: ignore[attr-defined]
            if count:
                return int(count)
            self.file.close()
            self.file = None

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
        super().close()


def members(folder: Path, manifest: Mapping[str, Any]) -> Iterator[tuple[str, IO[bytes]]]:
    """(name, content) of each wheel in the tar, each of them listed and none twice. Raises BadBundle."""
    left = dict(manifest["files"])
    stream = io.BufferedReader(Joined([folder / name for name in sorted(manifest["parts"])]), CHUNK)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for entry in tar:
                row = left.pop(entry.name, None)
                if row is None or not entry.isfile() or entry.size != row["size"]:
                    raise BadBundle(f"“{entry.name[:80]}” in it is not what the manifest lists. Refused.")
                content = tar.extractfile(entry)
                assert content is not None
                yield entry.name, content
    except (tarfile.TarError, EOFError, OSError) as error:
        raise BadBundle(f"It cannot be read as a tar ({error}). Make the bundle again.") from error
    finally:
        stream.close()
    if left:
        raise BadBundle(f"{min(left)} is listed and not in it, and {len(left) - 1} more. Make the bundle again.")


def unpack(folder: Path, manifest: Mapping[str, Any], target: Path | None) -> None:
    """Read every wheel and compare its digest; with `target` each goes there. Raises BadBundle, OSError."""
    for name, content in members(folder, manifest):
        found = hashlib.sha256()
        out = (target / name).open("wb") if target else None
        try:
            while piece := content.read(CHUNK):
                found.update(piece)
                if out:
                    out.write(piece)
        finally:
            if out:
                out.close()
        if found.hexdigest() != manifest["files"][name]["sha256"]:
            raise BadBundle(f"{name} in it has another digest than the manifest says. Make the bundle again.")


def check(folder: Path, told: Callable[[str], None] = lambda _line: None) -> dict[str, Any]:
    """The manifest of a bundle that is whole. Raises BadBundle."""
    manifest = read_manifest(manifest_in(folder))
    check_parts(folder, manifest, told)
    unpack(folder, manifest, None)
    return manifest


# ---------- making one ----------


class Splitter(io.RawIOBase):
    """A stream that is written into parts of at most `size` bytes; 0 is one part."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size = folder, size
        self.parts: dict[str, dict[str, Any]] = {}
        self.file: IO[bytes] | None = None
        self.digest, self.count = hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        while view:
            room = self.size - self.count if self.size else len(view)
            if self.file is None or not room:
                self._next()
                continue
            piece = view[:room]
            self.file.write(piece)
            self.digest.update(piece)
            self.count += len(piece)
            view = view[len(piece) :]
        return len(data)

    def _next(self) -> None:
        self._end()
        self.file = (self.folder / f"part-{len(self.parts) + 1:03}").open("wb")
        self.digest, self.count = hashlib.sha256(), 0

    def _end(self) -> None:
        if self.file is not None:
            name = f"part-{len(self.parts) + 1:03}"
            self.file.close()
            self.parts[name] = {"size": self.count, "sha256": self.digest.hexdigest()}
            self.file = None

    def close(self) -> None:
        self._end()
        super().close()


def pack(wheels: list[Path], folder: Path, split: int, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write the parts and then the manifest into `folder`; `about` is what else stands in it. The manifest."""
    files = {path.name: {"size": path.stat().st_size, "sha256": digest_of(path)} for path in sorted(wheels)}
    out = Splitter(folder, split)
    with out, tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(wheels):
            entry = tarfile.TarInfo(path.name)
            entry.size, entry.mode = path.stat().st_size, 0o644
            with path.open("rb") as content:
                tar.addfile(entry, content)
    made = {"format": FORMAT, **about, "files": files, "parts": out.parts}
    data = json.dumps(made, ensure_ascii=False, indent=1).encode()
    read_manifest(data)
    (folder / MANIFEST).write_bytes(data)
    return made
