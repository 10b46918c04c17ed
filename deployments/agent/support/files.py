"""Files of a folder that may hold anything: no link is followed, nothing but plain files is opened, all is bounded."""

import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOST_FILES = 20_000
DEEPEST = 8
SHOWN = 180  # characters of one name in an archive


class Found(NamedTuple):
    """`parts` lead there from the folder; `mtime` in epoch seconds."""

    parts: tuple[str, ...]
    size: int
    mtime: float


def listed(folder: Path) -> Iterator[Found]:
    """Plain files below the folder, at most MOST_FILES. A folder that cannot be read has none. Raises OSError for the
    top itself."""
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for parts, info in itertools.islice(_below(top, (), 0), MOST_FILES):
            yield Found(parts, info.st_size, info.st_mtime)
    finally:
        os.close(top)


def _below(folder: int, way: tuple[str, ...], depth: int) -> "Iterator[tuple[tuple[str, ...], os.stat_result]]":
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(info.st_mode):
                yield (*way, name), info
            elif stat.S_ISDIR(info.st_mode) and depth < DEEPEST:
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                try:
                    yield from _below(inner, (*way, name), depth + 1)
                finally:
                    os.close(inner)
        except OSError:
            continue


def opened(folder: Path, parts: tuple[str, ...]) -> int:
    """A descriptor of the plain file, each step on the way being no link. Raises OSError."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in parts[:-1]:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = inner
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(parts[-1], flags, dir_fd=at)
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(22, "not a plain file")
    return descriptor


def in_order(found: "list[Found]", since: int, until: int) -> "list[Found]":
    """Those written since then, nearest to `until` first; without one the newest first."""
    kept = [one for one in found if one.mtime >= since]
    return sorted(kept, key=lambda one: (abs(one.mtime - until) if until else -one.mtime, one.parts))


def shown(*parts: str) -> str:
    """A name that any archive, system and page can hold."""
    tidy = []
    for part in parts:
        text = part.encode("utf-8", "replace").decode("utf-8", "replace")
        text = "".join(c if c.isprintable() and c not in '\\/:*?"<>|' else "_" for c in text).strip(". ") or "_"
        tidy.append(text[:SHOWN])
    return "/".join(tidy)[-900:]
