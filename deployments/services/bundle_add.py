"""Put into a bundle by hand what pip cannot fetch: packages of the vendor, and wheels that were missing."""

import re
import shutil
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pip._vendor.packaging.requirements import InvalidRequirement, Requirement
from pip._vendor.packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from deployments.services.bundle_make import aside, swap
from deployments.stacks import bundles
from deployments.stacks.bundles import CHUNK, BadBundle

Say = Callable[[str], None]
HEADS = {"run": (b"#!",), "zip": (b"PK",), "rpm": (b"\xed\xab\xee\xdb",), "deb": (b"!<arch>",)}


def add(folder: Path, given: Iterable[Path], say: Say = print) -> dict[str, Any]:
    """Put files into the bundle in `folder`; of a folder among them those that the bundle wants. The manifest.

    Raises BadBundle naming the first file that cannot be, OSError; what was put in before it stays.
    """
    manifest = bundles.read_manifest(bundles.manifest_in(folder))
    wheels, packages = _sorted(manifest, given)
    for name, path in packages.items():
        manifest = _package(folder, manifest, name, path)
        say(f"{name}: {manifest['vendor'][name]['size'] / 2**20:,.0f} MB, {manifest['vendor'][name]['sha256']}")
    if wheels:
        manifest = _wheels(folder, manifest, wheels, say)
    return manifest


def _sorted(manifest: dict[str, Any], given: Iterable[Path]) -> tuple[dict[Path, str], dict[str, Path]]:
    """({wheel: the requirement that it meets}, {name in the manifest: package of the vendor})"""
    names = {name.lower(): name for name in manifest["vendor"]}
    wheels: dict[Path, str] = {}
    packages: dict[str, Path] = {}
    for path, is_named in _files(given):
        if path.name.lower() in names:
            packages[names[path.name.lower()]] = path
        elif requirement := _meets(manifest, path.name):
            wheels[path] = requirement
        elif is_named:
            wanted = [*manifest["vendor"], *dict.fromkeys(row["requirement"] for row in manifest["missing"])]
            raise BadBundle(f"{path.name} is none of what the bundle wants: {', '.join(wanted) or 'it wants nothing'}.")
    if not wheels and not packages:
        raise BadBundle("There is nothing in it that the bundle wants. bundle check DIR says what that is.")
    return wheels, packages


def _files(given: Iterable[Path]) -> Iterable[tuple[Path, bool]]:
    """Each file, and whether it was named itself. Raises BadBundle."""
    for path in given:
        if path.is_dir():
            yield from ((one, False) for one in sorted(path.iterdir()) if one.is_file())
        elif path.is_file():
            yield path, True
        else:
            raise BadBundle(f"There is no file {path}. Name a file, or the folder in which the files lie.")


def _meets(manifest: dict[str, Any], name: str) -> str:
    """The missing requirement that a wheel of this name meets, '' for none."""
    try:
        project, version, _build, _tags = parse_wheel_filename(name)
    except InvalidWheelFilename:
        return ""
    for row in manifest["missing"]:
        try:
            wanted = Requirement(row["requirement"].split(" (from ")[0])
        except InvalidRequirement:
            continue
        if canonicalize_name(wanted.name) == project and wanted.specifier.contains(version, prereleases=True):
            return str(row["requirement"])
    return ""


def _package(folder: Path, manifest: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    """Copy a package into the bundle, in parts as the rest; its size and digest go into the manifest."""
    row = manifest["vendor"][name]
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
    if not head.startswith(HEADS[name.rsplit(".", 1)[1]]):
        raise BadBundle(f"{path} is no installer, whatever its name says: a page of the web was saved, or it was cut "
                        "off at once. Download it again.")  # fmt: skip
    if row["size"] is not None and row["size"] != size:
        raise BadBundle(f"{path} has {size} bytes instead of {row['size']}: it was cut off. Download it again.")
    if row["sha256"] and bundles.digest_of(path) != row["sha256"]:
        raise BadBundle(f"{path} is damaged: its digest is not the one in the manifest. Download it again.")
    number = sorted(manifest["vendor"]).index(name) + 1
    for old in folder.glob(f"vendor-{number:02}-*"):
        old.unlink()
    out = bundles.Splitter(folder, manifest.get("split", 0), f"vendor-{number:02}")
    with out, path.open("rb") as file:
        shutil.copyfileobj(file, out, CHUNK)
    digest = bundles.digest_of(path)
    rows = {**manifest["vendor"], name: {**row, "size": size, "sha256": digest, "parts": out.parts}}
    made = bundles.write_manifest(folder, {**manifest, "vendor": rows})
    bundles.join(folder, made, name, None)  # what was read twice is the same, and so is what lies there now
    return made


def _wheels(folder: Path, manifest: dict[str, Any], wheels: dict[Path, str], say: Say) -> dict[str, Any]:
    """Pack the bundle anew with these among its wheels."""
    for path in wheels:
        if not zipfile.is_zipfile(path):
            raise BadBundle(f"{path} is no whole wheel. Get it again.")
    bundles.check_fit({**manifest, "files": {path.name: {} for path in wheels}})
    bundles.check_parts(folder, manifest)
    met = set(wheels.values())
    with aside(folder.parent) as room:
        house, packed = room / "all", room / "bundle"
        house.mkdir()
        packed.mkdir()
        bundles.unpack(folder, manifest, house)
        for path in wheels:
            shutil.copyfile(path, house / path.name)
            say(f"{path.name}: meets {wheels[path]}")
        own = ("format", "files", "parts", "split")
        about = {key: value for key, value in manifest.items() if key not in own}
        about["missing"] = [row for row in manifest["missing"] if row["requirement"] not in met]
        about["layers"] = [*manifest.get("layers", []), {"name": "by hand", "files": sorted(p.name for p in wheels)}]
        made = bundles.pack(list(house.iterdir()), packed, manifest.get("split", 0), about)
        for part in folder.iterdir():
            if re.fullmatch(bundles.VENDOR_PART, part.name):
                part.rename(packed / part.name)
        swap(packed, folder)
    return made
