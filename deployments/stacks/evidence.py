"""Whether what a step is to bring about is there: read from files alone, so that it takes a moment."""

import re
from pathlib import Path

from deployments.stacks.versions import same
from deployments.steps import Evidence

PYTHON = re.compile(r"python3?(\.\d+)?")
MOST_BYTES = 256 * 1024


def found(evidence: Evidence) -> bool:
    """Whether the file is there, and holds the line; of an environment's Python, whether the packages are installed
    whole, in these versions."""
    path = Path(evidence.file)
    if not path.is_file():
        return False
    if not evidence.value:
        return True
    if PYTHON.fullmatch(path.name):
        wanted = [word.strip().split(" ") for word in evidence.value.split(",")]
        return all(len(pair) == 2 and has_package(path.parent.parent, *pair) for pair in wanted)
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES).decode(errors="replace")
    except OSError:
        return False
    return any(_plain(line) == _plain(evidence.value) for line in text.splitlines())


def _plain(line: str) -> str:
    """Without what differs from one version of a file to the next: blanks around the sign, letters' case."""
    name, _sign, value = line.partition("=")
    return f"{name.strip()}={value.strip()}".lower()


def has_package(prefix: Path, name: str, version: str) -> bool:
    """Whether the environment has the package; pip writes RECORD last, so one without it is not whole."""
    wanted = re.sub(r"[-_.]+", "_", name).lower()
    for info in prefix.glob("lib*/python3*/site-packages/*.dist-info"):
        there, _dash, number = info.name.removesuffix(".dist-info").rpartition("-")
        if re.sub(r"[-_.]+", "_", there).lower() == wanted and same(number, version):
            return (info / "RECORD").is_file()
    return False
