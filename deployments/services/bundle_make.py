"""Make an offline bundle on a machine that reaches an index, and bring one into the console."""

import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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
        "stack": stack.name, "arch": target.arch, "python": target.python,
        "made": datetime.now(UTC).isoformat(timespec="seconds"), "vendor": vendor(stack, known, target.arch),
    }  # fmt: skip
    final = out / bundles.name_of(about)
    if final.exists():
        raise BadBundle(f"{final} is there already. Move it away, or name another folder with --out.")
    out.mkdir(parents=True, exist_ok=True)
    with aside(out) as folder:
        fetch = Fetch(stack, known, target, folder, say)
        layers = [_layer(fetch, name, work) for name, work in fetch.layers()]
        wheels = list(fetch.wheels.iterdir())
        if not wheels:
            words = ", ".join(dict.fromkeys(one.requirement for one in fetch.missing))
            raise BadBundle(f"Nothing came: {words} could not be had. Name another index or folder of wheels.")
        if odd := [path.name for path in wheels if not bundles.FILE.fullmatch(path.name)]:
            raise BadBundle(f"pip brought {odd[0]}, which is no wheel. Make the bundle on a machine of the same kind.")
        packed = folder / "bundle"
        packed.mkdir()
        more = {
            "layers": layers,
            "glibc": bundles.glibc_of(path.name for path in wheels),
            "missing": [one._asdict() for one in fetch.missing],
            "left_out": fetch.left_out,
        }
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
    fetch.say(f"{name}: {_number(len(came), 'wheel')}, {size / 2**20:,.0f} MB")
    return {"name": name, "files": came}


@contextmanager
def aside(out: Path) -> Iterator[Path]:
    """A folder beside the result, which goes whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix=".making-", dir=out))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def swap(new: Path, final: Path) -> None:
    """Put a folder in the place of another, which goes out of the way first."""
    gone = final.with_name(f".gone-{final.name}")
    shutil.rmtree(gone, ignore_errors=True)
    if final.exists():
        final.rename(gone)
    new.rename(final)
    shutil.rmtree(gone, ignore_errors=True)


def vendor(stack: Stack, known: Catalogue, arch: str) -> dict[str, dict[str, Any]]:
    """{name: {chips}} of the vendor's packages, to be put in by hand: each chip has operators of its own."""
    if stack.kind == "cpu":
        return {}
    found: dict[str, dict[str, Any]] = {}
    for family in stack.families:
        cann = stack.cann_for(family)
        for pattern in (known.files["toolkit"], known.ops_file(family, cann, arch), known.files["nnal"]):
            if pattern:
                name = pattern.format(version=cann, arch=arch)
                found.setdefault(name, {"chips": []})["chips"].append(family)
    return found


def summary(manifest: dict[str, Any]) -> str:
    packages = [row for row in manifest["vendor"].values() if row["parts"]]
    size = sum(row["size"] for row in [*manifest["files"].values(), *packages])
    parts = len(manifest["parts"]) + sum(len(row["parts"]) for row in packages)
    counted = [_number(len(manifest["files"]), "wheel"), *([_number(len(packages), "package")] if packages else [])]
    counted += [f"{size / 2**20:,.0f} MB", _number(parts, "part")]
    least = bundles.glibc_of(manifest["files"])
    return f"{bundles.name_of(manifest)}: {', '.join(counted)}{f', for glibc ≥ {least}' if least else ''}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def wanted(manifest: dict[str, Any]) -> list[str]:
    """What is to be put in by hand yet, a line each: first the wheels, without which it is not whole."""
    rows = {row["requirement"]: row for row in manifest["missing"]}.values()
    missing = [f"missing: {row['requirement']} ({row['why']})" for row in rows]
    packages = [
        f"not put in: {name} (for {', '.join(row['chips']) or 'every chip'})"
        for name, row in manifest["vendor"].items()
        if not row["parts"]
    ]
    return [*missing, *packages]
