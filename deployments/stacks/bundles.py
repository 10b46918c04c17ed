"""The format of an offline bundle: a folder with `manifest.json` and parts, which joined are one tar of wheels.

The parts have a size that fits a stick or a disc; the manifest has a digest for each part and for each wheel, so that
a part that was damaged on its way is named before anything is unpacked. Nothing in it is trusted but what its digest
says: names are plain file names, and what the manifest does not list is refused. Plain code: servers read it too.
"""

import contextlib
import errno
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

FORMAT = 1
MANIFEST, WHEELS = "manifest.json", "wheels"
MOST_FILES, MOST_BYTES, MOST_PACKAGES = 2000, 64 << 30, 40
MAX_MANIFEST = 2 << 20
CHUNK = 1 << 20
LEAST_SPLIT = 64 << 10
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,199}\.whl", re.ASCII)
PART = re.compile(r"part-\d{3,5}", re.ASCII)
PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\.(run|zip|rpm|deb)", re.ASCII)
VENDOR_PART = re.compile(r"vendor-\d{2}-\d{3,5}", re.ASCII)
DIGEST = re.compile(r"[0-9a-f]{64}")
WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)
PYTHON = re.compile(r"3\.\d{1,2}", re.ASCII)


class BadBundle(ValueError):
    """What is wrong with a bundle and what to do, in one or two sentences."""


def name_of(manifest: Mapping[str, Any]) -> str:
    return f"{manifest['stack']}-{manifest['arch']}-py{manifest['python']}"


def in_order(parts: Iterable[str]) -> list[str]:
    """Names of parts as they were written: part-1000 comes after part-999."""
    return sorted(parts, key=lambda name: (len(name), name))


def shown(text: str, most: int) -> str:
    """Text out of a bundle, as it may go to a terminal."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text[:most])


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
    if not PYTHON.fullmatch(made["python"]):
        raise BadBundle(f"{MANIFEST} is for Python {made['python']}, which is no version such as 3.11. Make it again.")
    _check_rows(made.get("files"), FILE, "files", MOST_FILES)
    _check_rows(made.get("parts"), PART, "parts", MOST_FILES)
    if sum(row["size"] for row in made["files"].values()) > MOST_BYTES:
        raise BadBundle(f"{MANIFEST} names more than {MOST_BYTES >> 30} GB of wheels.")
    _check_rest(made)
    made["vendor"], made["missing"] = _vendor(made.get("vendor", {})), _missing(made.get("missing", []))
    return made


def _check_rest(made: Mapping[str, Any]) -> None:
    """What `bundle add` goes by, and an older bundle need not have. Raises BadBundle."""
    split, layers = made.get("split", 0), made.get("layers", [])
    if type(split) is not int or (split and split < LEAST_SPLIT):
        raise BadBundle(f"{MANIFEST} has no size to split by in “split”: 0, or {LEAST_SPLIT >> 10}K or more. Make the "
                        "bundle again.")  # fmt: skip
    if not isinstance(layers, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("files"), list)
        for one in layers
    ):
        raise BadBundle(f"{MANIFEST} has no list of layers, each with a name and files. Make the bundle again.")


def _vendor(rows: Any) -> dict[str, dict[str, Any]]:
    """{name: {chips, size, sha256, parts}} of the vendor's packages; the last two are None and {} for one that was not
    put in yet. Raises BadBundle. Older bundles list names alone."""
    if isinstance(rows, list):
        rows = {str(name): {} for name in rows}
    if not isinstance(rows, dict) or len(rows) > MOST_PACKAGES:
        raise BadBundle(f"{MANIFEST} has no list of the vendor's packages. Make the bundle again.")
    found = {}
    for name, row in rows.items():
        if not PACKAGE.fullmatch(name) or not isinstance(row, dict):
            raise BadBundle(
                f"{MANIFEST} names “{shown(name, 80)}” among the packages, which is no plain name. Refused."
            )
        chips, parts = row.get("chips", []), row.get("parts", {})
        if not isinstance(chips, list) or not all(isinstance(chip, str) for chip in chips):
            raise BadBundle(f"{MANIFEST} does not say for which chips {name} is. Make the bundle again.")
        chips = [shown(chip, 40) for chip in chips]
        one = {"chips": chips, "size": row.get("size"), "sha256": row.get("sha256"), "parts": parts}
        if one["size"] is not None or one["sha256"] is not None or parts:
            _check_rows({name: one}, PACKAGE, "packages", 1)
        if parts:
            _check_rows(parts, VENDOR_PART, "parts", MOST_FILES)
            if sum(part["size"] for part in parts.values()) != one["size"]:
                raise BadBundle(f"{MANIFEST}: the parts of {name} have another size together. Put it in again.")
        found[name] = one
    return found


def _missing(rows: Any) -> list[dict[str, str]]:
    """[{layer, requirement, why}] of what was not to be had. Raises BadBundle."""
    keys = ("layer", "requirement", "why")
    whole = isinstance(rows, list) and all(
        isinstance(row, dict) and all(isinstance(row.get(key), str) for key in keys) for row in rows
    )
    if not whole:
        raise BadBundle(f"{MANIFEST} has no list of what is missing. Make the bundle again.")
    return [{key: shown(row[key], 400) for key in keys} for row in rows]


def check_fit(manifest: Mapping[str, Any]) -> None:
    """Raises BadBundle naming the first wheel that is for another machine than the manifest says."""
    arch, python = manifest["arch"], manifest["python"]
    for name in sorted(manifest["files"]):
        tags = name.removesuffix(".whl").split("-")[-3:]
        if len(tags) < 3 or not _fits((tags[0], tags[1], tags[2]), arch, python):
            raise BadBundle(
                f"{name} is not for {arch} with Python {python}, of which {MANIFEST} speaks. Make the bundle again."
            )


def _fits(tags: tuple[str, str, str], arch: str, python: str) -> bool:
    """Whether a wheel's tags let it in: cp312-cp312-manylinux_2_28_aarch64, py3-none-any, cp38-abi3-…"""
    pythons, abis, platforms = tags
    own = tuple(int(number) for number in python.split(".")[:2])
    if not any(one == "any" or one.endswith(f"_{arch}") for one in platforms.split(".")):
        return False
    exact = "abi3" not in abis.split(".") and "none" not in abis.split(".")
    for one in pythons.split("."):
        found = re.fullmatch(r"(cp|py)(\d)(\d*)", one)
        if found:
            version = (int(found[2]), int(found[3] or 0))
            if version == own or (not exact and version[0] == own[0] and version <= own):
                return True
    return False


OLDER_TAGS = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}


def glibc_of(files: Iterable[str]) -> str:
    """The oldest glibc that takes every one of these wheels, `2.34`; '' where none of them asks for one."""
    least = max((_glibc_minor(name.removesuffix(".whl").rpartition("-")[2]) for name in files), default=0)
    return f"2.{least}" if least else ""


def _glibc_minor(platforms: str) -> int:
    """28 of `manylinux_2_28_x86_64.manylinux_2_31_x86_64`: a wheel is taken where any of its tags fits."""
    found = [int(minor) for minor in re.findall(r"manylinux_2_(\d{1,3})_", platforms)]
    found += [minor for tag, minor in OLDER_TAGS.items() if f"{tag}_" in platforms]
    return min(found, default=0)


def _check_rows(rows: Any, names: "re.Pattern[str]", what: str, most: int) -> None:
    """{name: {size, sha256}}. Raises BadBundle."""
    if not isinstance(rows, dict) or not rows or len(rows) > most:
        raise BadBundle(f"{MANIFEST} lists no {what}, or more than {most}. Make the bundle again.")
    for name, row in rows.items():
        if not names.fullmatch(name):
            raise BadBundle(
                f"{MANIFEST} names “{shown(name, 80)}” among its {what}, which is no plain name of one. Refused."
            )
        size, digest = (row.get("size"), row.get("sha256")) if isinstance(row, dict) else (None, None)
        whole = isinstance(size, int) and not isinstance(size, bool) and size >= 0
        if not whole or not isinstance(digest, str) or not DIGEST.fullmatch(digest):
            raise BadBundle(f"{MANIFEST} has no size and digest for {name}. Make the bundle again.")


def manifest_in(folder: Path) -> bytes:
    """The bytes of a bundle's manifest. Raises BadBundle."""
    path = folder / MANIFEST
    try:
        if not path.is_file():  # what is a pipe would be waited for
            raise FileNotFoundError(errno.ENOENT, "no such file")
        with path.open("rb") as file:
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
    groups = [manifest["parts"], *(row["parts"] for row in manifest["vendor"].values())]
    parts = [(name, group[name]) for group in groups for name in in_order(group)]
    for n, (name, row) in enumerate(parts, 1):
        told(f"{name} ({n} of {len(parts)})")
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
    stream = io.BufferedReader(Joined([folder / name for name in in_order(manifest["parts"])]), CHUNK)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for entry in tar:
                row = left.pop(entry.name, None)
                if row is None or not entry.isfile() or entry.size != row["size"]:
                    raise BadBundle(f"“{shown(entry.name, 80)}” in it is not what the manifest lists. Refused.")
                content = tar.extractfile(entry)
                assert content is not None
                yield entry.name, content
    except BadBundle:
        raise
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:  # tarfile lets ValueError of some headers out
        raise BadBundle(f"It cannot be read as a tar ({error}). Make the bundle again.") from error
    finally:
        stream.close()
    if left:
        raise BadBundle(f"{min(left)} is listed and not in it, and {len(left) - 1} more. Make the bundle again.")


def unpack(folder: Path, manifest: Mapping[str, Any], target: Path | None) -> None:
    """Read every wheel and compare its digest; with `target` each goes there. Raises BadBundle, OSError."""
    for name, content in members(folder, manifest):
        if _copied(content, target / name if target else None) != manifest["files"][name]["sha256"]:
            raise BadBundle(f"{name} in it has another digest than the manifest says. Make the bundle again.")


def join(folder: Path, manifest: Mapping[str, Any], name: str, target: Path | None) -> None:
    """Put the parts of a package of the vendor together and compare its digest. Raises BadBundle, OSError."""
    row = manifest["vendor"][name]
    with io.BufferedReader(Joined([folder / part for part in in_order(row["parts"])]), CHUNK) as stream:
        digest = _copied(stream, target)
    if digest != row["sha256"]:
        raise BadBundle(f"{name} in it has another digest than the manifest says. Put it in again: bundle add")


def _copied(content: IO[bytes], target: Path | None) -> str:
    """The SHA-256 of what can be read; with `target` it goes there."""
    found = hashlib.sha256()
    with target.open("wb") if target else contextlib.nullcontext() as out:
        while piece := content.read(CHUNK):
            found.update(piece)
            if out:
                out.write(piece)
    return found.hexdigest()


def check(folder: Path, told: Callable[[str], None] = lambda _line: None) -> dict[str, Any]:
    """The manifest of a bundle that is whole. Raises BadBundle."""
    manifest = read_manifest(manifest_in(folder))
    check_fit(manifest)
    check_parts(folder, manifest, told)
    unpack(folder, manifest, None)
    for name, row in manifest["vendor"].items():
        if row["parts"]:
            join(folder, manifest, name, None)
    return manifest


# ---------- making one ----------


class Splitter(io.RawIOBase):
    """A stream that is written into parts of at most `size` bytes; 0 is one part."""

    def __init__(self, folder: Path, size: int, prefix: str = "part") -> None:
        self.folder, self.size, self.prefix = folder, size, prefix
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
        self.file = (self.folder / f"{self.prefix}-{len(self.parts) + 1:03}").open("wb")
        self.digest, self.count = hashlib.sha256(), 0

    def _end(self) -> None:
        if self.file is not None:
            name = f"{self.prefix}-{len(self.parts) + 1:03}"
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
    return write_manifest(folder, {"format": FORMAT, **about, "split": split, "files": files, "parts": out.parts})


def write_manifest(folder: Path, made: Mapping[str, Any]) -> dict[str, Any]:
    """Write it, whole or not at all; what it reads as. Raises BadBundle, OSError."""
    data = json.dumps(made, ensure_ascii=False, indent=1).encode()
    read = read_manifest(data)
    new = folder / f".{MANIFEST}.new"
    new.write_bytes(data)
    new.replace(folder / MANIFEST)
    return read
