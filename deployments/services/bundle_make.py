"""Make an offline bundle on a machine that reaches an index, and bring one into the console."""

import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deployments.services import wheel_bundles
from deployments.services.bundle_fetch import Fetch, Target
from deployments.stacks import bundles
from deployments.stacks.bundles import BadBundle
from deployments.stacks.catalogue import Catalogue, Stack
from deployments.stacks.versions import fits, key

Say = Callable[[str], None]


def python_for(stack: Stack, wish: str) -> str:
    """The minor version of Python to make it for. Raises BadBundle."""
    if wish:
        if not fits(f"{wish}.99", stack.python):
            raise BadBundle(f"{stack.name} takes Python {stack.python}, which {wish} is not. Name another one.")
        return wish
    own = ".".join(platform.python_version_tuple()[:2])
    every = list(stack.wheel_pythons or ())
    return own if own in every or not every else max(every, key=key)


def make(stack: Stack, known: Catalogue, target: Target, out: Path, *, split: int = 0, say: Say = print) -> Path:
    """Write the bundle below `out`; its folder. Raises BadBundle naming the layer that could not be had."""
    about = {
        "stack": stack.name, "arch": target.arch, "python": target.python, "glibc": stack.glibc_min,
        "made": datetime.now(UTC).isoformat(timespec="seconds"), "vendor": vendor(stack, known, target.arch),
    }  # fmt: skip
    final = out / bundles.name_of(about)
    if final.exists():
        raise BadBundle(f"{final} is there already. Move it away, or name another folder with --out.")
    out.mkdir(parents=True, exist_ok=True)
    with _aside(out) as folder:
        fetch = Fetch(stack, known, target, folder, say)
        layers = [_layer(fetch, name, work) for name, work in fetch.layers()]
        wheels = list(fetch.wheels.iterdir())
        if odd := [path.name for path in wheels if not bundles.FILE.fullmatch(path.name)]:
            raise BadBundle(f"pip brought {odd[0]}, which is no wheel. Make the bundle on a machine of the same kind.")
        packed = folder / "bundle"
        packed.mkdir()
        more = {"layers": layers, "missing": [one._asdict() for one in fetch.missing], "left_out": fetch.left_out}
        bundles.pack(wheels, packed, split, {**about, **more})
        packed.rename(final)
    return final


def _layer(fetch: Fetch, name: str, work: Callable[[], None]) -> dict[str, Any]:
    """Fetch one layer; its name and the files that came with it."""
    before = {path.name for path in fetch.wheels.iterdir()}
    fetch.say(f"{name} …")
    work()
    came = sorted(path.name for path in fetch.wheels.iterdir() if path.name not in before)
    size = sum((fetch.wheels / one).stat().st_size for one in came)
    fetch.say(f"{name}: {len(came)} wheels, {size / 2**20:,.0f} MB")
    return {"name": name, "files": came}


@contextmanager
def _aside(out: Path) -> Iterator[Path]:
    """A folder beside the result, which goes whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix=".making-", dir=out))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def vendor(stack: Stack, known: Catalogue, arch: str) -> list[str]:
    """Packages of the vendor, to be got and put on the servers by hand: each chip has operators of its own."""
    if stack.kind == "cpu":
        return []
    found = []
    for family in stack.families:
        cann = stack.cann_for(family)
        names = [known.files["toolkit"], known.ops_file(family, cann, arch), known.files["nnal"]]
        found += [name.format(version=cann, arch=arch) for name in names if name]
    return list(dict.fromkeys(found))


# ---------- into the console ----------


def bring_in(source: Path, say: Say = print) -> wheel_bundles.Kept:
    """Keep a bundle that is whole, in place of one of the same name. Raises BadBundle, OSError."""
    data = bundles.manifest_in(source)
    manifest = bundles.read_manifest(data)
    name = bundles.name_of(manifest)
    need = sum(row["size"] for row in manifest["files"].values())
    home = wheel_bundles.folder()
    home.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(home).free) < need + (64 << 20):
        raise BadBundle(f"It takes {need >> 20:,} MB, and {home} has {free >> 20:,} MB. Make room, then try again.")
    bundles.check_parts(source, manifest, say)
    with _aside(home) as folder:
        (folder / bundles.WHEELS).mkdir()
        bundles.unpack(source, manifest, folder / bundles.WHEELS)
        (folder / bundles.MANIFEST).write_bytes(data)
        folder.chmod(0o755)
        _replace(folder, home / name)
    return wheel_bundles.find(name)


def _replace(new: Path, final: Path) -> None:
    """Put the folder in its place; one that is there goes out of the way first."""
    gone = final.with_name(f".gone-{final.name}")
    shutil.rmtree(gone, ignore_errors=True)
    if final.exists():
        final.rename(gone)
    new.rename(final)
    shutil.rmtree(gone, ignore_errors=True)


def take_out(name: str) -> None:
    """Remove one. Raises NotFound."""
    found = wheel_bundles.find(name)
    shutil.rmtree(wheel_bundles.folder() / found.name)


def summary(manifest: dict[str, Any]) -> str:
    size = sum(row["size"] for row in manifest["files"].values())
    files, parts = len(manifest["files"]), len(manifest["parts"])
    return f"{bundles.name_of(manifest)}: {files} wheels, {size / 2**20:,.0f} MB, {parts} parts"
