"""Whether what a step is to bring about is there: read from files, so that it takes a moment; of an image the engine
is asked."""

import re
import subprocess
from pathlib import Path

from deployments.stacks.versions import same
from deployments.steps import Evidence

PYTHON = re.compile(r"python3?(\.\d+)?")
MOST_BYTES = 256 * 1024
MOST_FILES = 40
IMAGE = re.compile(r"(docker|podman|nerdctl) image")  # in place of a file
INFOS = "lib*/python3*/site-packages/*.dist-info"
ANSWER_S = 60.0
ACTED = "var/lib/containers/images"  # of a simulated server: the names of its images


def found(evidence: Evidence, root: Path = Path("/")) -> bool:
    """Whether the file is there, and holds the line; of an environment's Python, whether the packages are installed
    whole, in these versions, and without a value whether pip was killed at none of what is there; of a folder, whether
    it is of that version by its name or by a file of its installer."""
    if engine := IMAGE.fullmatch(evidence.file):
        return _has_image(engine[1], evidence.value) if root == Path("/") else _holds(root / ACTED, evidence.value)
    path = root / evidence.file.lstrip("/")
    if path.is_dir():
        told = evidence.value.partition("=")[2] == path.name
        return told or any(_holds(one, evidence.value) for one in sorted(path.glob("*install.info"))[:MOST_FILES])
    if not path.is_file():
        return False
    is_python = PYTHON.fullmatch(path.name)
    if not evidence.value:
        return not (is_python and halves(path.parent.parent))
    if is_python:
        wanted = [word.strip().split(" ") for word in evidence.value.split(",")]
        return all(len(pair) == 2 and has_package(path.parent.parent, *pair) for pair in wanted)
    return _holds(path, evidence.value)


def _has_image(engine: str, image: str) -> bool:
    try:
        asked = subprocess.run(
            [engine, "image", "inspect", image], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, timeout=ANSWER_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def _holds(path: Path, wanted: str) -> bool:
    try:
        with path.open("rb") as file:
            lines = file.read(MOST_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return False
    return any(_plain(line) == _plain(wanted) for line in lines)


def _plain(line: str) -> tuple[str, str]:
    """Name and value, without what differs from one version of a file to the next: blanks, case, and that a driver's
    file may say package_version."""
    name, _sign, value = line.lower().partition("=")
    name = name.strip()
    return ("version" if name == "package_version" else name), value.strip()


def has_package(prefix: Path, name: str, version: str) -> bool:
    """Whether the environment has the package, whole."""
    wanted = re.sub(r"[-_.]+", "_", name).lower()
    for info in prefix.glob(INFOS):
        there, _dash, number = info.name.removesuffix(".dist-info").rpartition("-")
        if re.sub(r"[-_.]+", "_", there).lower() == wanted and same(number, version):
            return _is_whole(info)
    return False


def halves(prefix: Path) -> list[str]:
    """Packages of an environment at which pip was killed, `name-version` each: pip itself would find them installed."""
    every = sorted(prefix.glob(INFOS))
    return [info.name.removesuffix(".dist-info") for info in every if not _is_whole(info)]


def _is_whole(info: Path) -> bool:
    """A wheel has its RECORD at its end, and pip writes INSTALLER behind its programs, when all else is there."""
    return (info / "RECORD").is_file() and (info / "INSTALLER").is_file()
