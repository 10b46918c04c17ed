"""Offline bundles that the console keeps and hands to servers, below VAR_DIR/bundles: a folder of wheels each."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from console.errors import NotFound
from deployments.stacks.bundles import MANIFEST, WHEELS, BadBundle, glibc_of, read_manifest

PACKAGES = "packages"  # of the vendor, beside the wheels


@dataclass(frozen=True)
class Kept:
    """One bundle; `digest` is that of its manifest, SHA-256, hex."""

    name: str
    digest: str
    stack: str
    arch: str
    python: str
    size: int
    manifest: dict[str, Any]

    @property
    def wheels(self) -> Path:
        return folder() / self.name / WHEELS

    @property
    def packages(self) -> Path:
        return folder() / self.name / PACKAGES

    @property
    def glibc(self) -> str:
        """The oldest that its wheels run with, '' where none asks for one."""
        return glibc_of(self.manifest["files"])

    @property
    def package_names(self) -> list[str]:
        """The vendor's packages that were put in."""
        return [name for name, row in self.manifest["vendor"].items() if row["parts"]]


def folder() -> Path:
    return Path(settings.VAR_DIR) / "bundles"


def present() -> list[Kept]:
    """All, by name; what cannot be read is left out."""
    found = []
    for path in sorted(folder().glob(f"*/{MANIFEST}")):
        if path.parent.name.startswith("."):  # half of one, or one that goes
            continue
        try:
            found.append(_kept(path))
        except (OSError, BadBundle, json.JSONDecodeError):
            continue
    return found


def _kept(path: Path) -> Kept:
    data = path.read_bytes()
    manifest = read_manifest(data)
    packages = [row for row in manifest["vendor"].values() if row["parts"]]
    size = sum(one["size"] for one in [*manifest["files"].values(), *packages])
    return Kept(
        path.parent.name, hashlib.sha256(data).hexdigest(), manifest["stack"], manifest["arch"], manifest["python"],
        size, manifest,
    )  # fmt: skip


def find(name: str) -> Kept:
    """Raises NotFound."""
    for one in present():
        if name in (one.name, f"{one.name}@{one.digest}"):
            return one
    raise NotFound(
        _("The console has no bundle “%(name)s”.") % {"name": name[:120]},
        _("manage.py bundle list shows those it has; manage.py bundle import DIR brings one in."),
        code="unknown_bundle",
    )


def fitting(stack: str, arch: str | None) -> list[Kept]:
    return [one for one in present() if one.stack == stack and arch in (None, one.arch)]


def file_of(name: str, file: str) -> Path:
    """The path of a listed wheel or package of a bundle, of its manifest for ''. Raises NotFound."""
    found = find(name)
    path = found.wheels / file if file in found.manifest["files"] else folder() / found.name / MANIFEST
    if file in found.package_names:
        path = found.packages / file
    if (file and path.name == MANIFEST) or not path.is_file():
        raise NotFound(
            _("The bundle “%(name)s” has no file “%(file)s”.") % {"name": found.name, "file": file[:120]},
            _("Import the bundle again: manage.py bundle import DIR"),
            code="unknown_file",
        )
    return path
