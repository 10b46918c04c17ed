"""Which processes of this server use files of a folder: open, mapped into memory, run from, or stood in.

Files are known by device and number, so that one that is reached by another path (a container's mount) is noticed too.
Processes of other accounts cannot be looked into without root; how many those are is told.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
Place = tuple[int, int]  # device and number of a file


class Use(NamedTuple):
    pid: int
    name: str
    file: str


class Looked(NamedTuple):
    """`hidden` is how many processes could not be looked into."""

    uses: list[Use]
    hidden: int


def look(folder: Path, *, proc: Path = PROC) -> Looked:
    """Who uses files of that folder, this process left out."""
    places, real = _places(folder), f"{os.path.realpath(folder)}/"
    uses, hidden = [], 0
    for one in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        if one.name == str(os.getpid()):
            continue
        try:
            file = next((name for used in _used(one) if (name := _named(used, places, real))), None)
        except PermissionError:
            hidden += 1
            continue
        except OSError:  # it has ended meanwhile
            continue
        if file:
            uses.append(Use(int(one.name), _name(one), file))
    return Looked(uses, hidden)


def _named(used: tuple[Place, str], places: dict[Place, str], real: str) -> str | None:
    """The file by its number, else by its path: some file systems show other devices in memory maps."""
    place, path = used
    return places.get(place) or (path.removeprefix(real) if path.startswith(real) else None)


def _places(folder: Path) -> dict[Place, str]:
    """Device and number of the folder, what lies below it, and what links in it point to."""
    found = {_of(folder.stat()): folder.name}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(root, name)  # noqa: PTH118 - by the hundred thousand
            for info in (os.stat, os.lstat):
                try:
                    found.setdefault(_of(info(path)), os.path.relpath(path, folder))
                except OSError:
                    continue
    return found


def _of(info: os.stat_result) -> Place:
    return info.st_dev, info.st_ino


def _used(process: Path) -> Iterator[tuple[Place, str]]:
    """Raises OSError: PermissionError where the process is another account's."""
    for descriptor in (process / "fd").iterdir():
        try:
            yield _of(descriptor.stat()), ""
        except OSError:
            continue
    for name in ("cwd", "exe"):
        try:
            yield _of((process / name).stat()), ""
        except OSError:
            continue
    yield from _mapped((process / "maps").read_text(encoding="utf-8", errors="replace"))


def _mapped(text: str) -> Iterator[tuple[Place, str]]:
    """`7f0c-7f0d r--p 00000000 fe:01 4711   /data/m/model.safetensors`: device in hex, then the number."""
    for line in text.splitlines():
        cells = line.split(maxsplit=5)
        if len(cells) == 6 and cells[4] != "0":
            major, _colon, minor = cells[3].partition(":")
            yield (os.makedev(int(major, 16), int(minor, 16)), int(cells[4])), cells[5]


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text(encoding="utf-8", errors="replace").strip()[:40]
    except OSError:
        return "?"
