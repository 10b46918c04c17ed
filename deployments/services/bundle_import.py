"""Bring a bundle into the console, which hands it to servers, and take one out again."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.utils.translation import gettext as _

from console.errors import Conflict
from deployments import locks
from deployments.models import Job, JobState
from deployments.models.job import UNDER_WAY
from deployments.services import wheel_bundles
from deployments.services.bundle_make import aside, swap
from deployments.services.wheel_bundles import PACKAGES, Kept
from deployments.stacks import bundles
from deployments.stacks.bundles import BadBundle, digest_of

Say = Callable[[str], None]
NOT_BEGUN = (JobState.DRAFT, JobState.WAITING_APPROVAL)  # of a campaign that goes on, or waits for somebody
SPARE_BYTES = 64 << 20


def bring_in(source: Path, say: Say = print) -> Kept:
    """Keep a bundle that is whole, in place of one of the same name. Raises BadBundle, OSError, and Conflict while a
    job installs from the one that is here."""
    data = bundles.manifest_in(source)
    manifest = bundles.read_manifest(data)
    name = bundles.name_of(manifest)
    _check_complete(manifest)
    bundles.check_fit(manifest)
    home = wheel_bundles.folder()
    home.mkdir(parents=True, exist_ok=True)
    with alone(home):
        if _is_here(home / name, data):
            say(f"{name} is here already, whole; nothing was changed.")
            return wheel_bundles.find(name)
        check_unused(name)
        _check_room(home, manifest)
        bundles.check_parts(source, manifest, say)
        with aside(home) as folder:
            _unpack(source, manifest, folder)
            (folder / bundles.MANIFEST).write_bytes(data)
            folder.chmod(0o755)
            check_unused(name)  # one may have been queued while we unpacked
            swap(folder, home / name)
    return wheel_bundles.find(name)


def _check_complete(manifest: dict[str, Any]) -> None:
    missing = list(dict.fromkeys(row["requirement"] for row in manifest["missing"]))
    if missing:
        raise BadBundle(
            f"It is not complete: {', '.join(missing[:5])}{' …' if len(missing) > 5 else ''} could not be had when it "
            "was made. Put the wheels in (bundle add DIR FILE), or make it again with an index that has them."
        )


def _check_room(home: Path, manifest: dict[str, Any]) -> None:
    packages = [row for row in manifest["vendor"].values() if row["parts"]]
    need = sum(row["size"] for row in [*manifest["files"].values(), *packages])
    if (free := shutil.disk_usage(home).free) < need + SPARE_BYTES:
        raise BadBundle(f"It takes {need >> 20:,} MB, and {home} has {free >> 20:,} MB. Make room, then try again.")


def _unpack(source: Path, manifest: dict[str, Any], folder: Path) -> None:
    (folder / bundles.WHEELS).mkdir()
    (folder / PACKAGES).mkdir()
    bundles.unpack(source, manifest, folder / bundles.WHEELS)
    for name, row in manifest["vendor"].items():
        if row["parts"]:
            bundles.join(source, manifest, name, folder / PACKAGES / name)


def _is_here(kept: Path, data: bytes) -> bool:
    """Whether that very bundle is kept, and whole."""
    try:
        if (kept / bundles.MANIFEST).read_bytes() != data:
            return False
        check_kept(kept)
    except (OSError, BadBundle):
        return False
    return True


def check_kept(kept: Path) -> dict[str, Any]:
    """The manifest of a bundle that the console keeps. Raises BadBundle naming the first file that is not whole."""
    manifest = bundles.read_manifest(bundles.manifest_in(kept))
    rows = [(bundles.WHEELS, name, row) for name, row in sorted(manifest["files"].items())]
    rows += [(PACKAGES, name, row) for name, row in sorted(manifest["vendor"].items()) if row["parts"]]
    for part, name, row in rows:
        path = kept / part / name
        if not path.is_file():
            raise BadBundle(f"{name} is missing from {path.parent}. Import the bundle again.")
        if path.stat().st_size != row["size"] or digest_of(path) != row["sha256"]:
            raise BadBundle(f"{name} in {path.parent} is damaged. Import the bundle again.")
    return manifest


def check_unused(name: str) -> None:
    """Raises Conflict naming the jobs that install from this bundle, or are about to."""
    rows = Job.objects.filter(kind="install", state__in=(*NOT_BEGUN, *UNDER_WAY)).select_related("server")
    using = [row for row in rows.order_by("pk") if str(row.params.get("bundle", "")).partition("@")[0] == name]
    if using:
        jobs = ", ".join(f"#{row.pk} ({row.server.name})" for row in using[:5])
        raise Conflict(
            _("Jobs install from the bundle %(name)s: %(jobs)s.") % {"name": name, "jobs": jobs},
            _("Wait until they have ended or cancel them, then try again."),
            code="bundle_in_use",
        )


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """One import or removal at a time; what one that was killed has left goes first. Raises Conflict."""
    lock = locks.take_lock(home.with_name(f"{home.name}.lock"))
    if lock is None:
        raise Conflict(
            _("Another bundle is being imported or removed just now."),
            _("Wait until that has ended, then try again."),
            code="bundle_busy",
        )
    try:
        for left in [*home.glob(".making-*"), *home.glob(".gone-*")]:
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(lock)


def take_out(name: str) -> None:
    """Remove one. Raises NotFound, Conflict."""
    found = wheel_bundles.find(name)
    with alone(wheel_bundles.folder()):
        check_unused(found.name)
        gone = wheel_bundles.folder() / f".gone-{found.name}"
        (wheel_bundles.folder() / found.name).rename(gone)  # from here on nobody is handed half of it
        shutil.rmtree(gone)
