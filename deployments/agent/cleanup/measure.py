"""How much a folder or file holds, when it was last used, and whose it is. No file is opened, no link followed."""

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

OLD_SPOOL_S = 7 * 24 * 3600.0
MOST_ENTRIES = 300_000  # of one candidate
PATIENCE_S = 20.0


@dataclass
class Size:
    """Bytes on the disk and files; `used_at` is the newest time a file was read or written (epoch seconds, 0 for no
    file), `changed_at` the newest change. `foreign` counts what belongs to other accounts; `whole` is False where the
    count was given up."""

    bytes: int = 0
    files: int = 0
    used_at: float = 0.0
    changed_at: float = 0.0
    foreign: int = 0
    whole: bool = True


def is_mine(found: os.stat_result) -> bool:
    return os.geteuid() in (0, found.st_uid)


def used_since(path: Path, seconds: float) -> bool:
    """Whether it was changed within so many seconds; one that cannot be read counts as changed."""
    try:
        return time.time() - path.lstat().st_mtime < seconds
    except OSError:
        return True


def measure(path: Path, *, patience_s: float = PATIENCE_S) -> Size:
    """Of a file, or of everything below a folder. Hard links count once."""
    size, until = Size(), time.monotonic() + patience_s
    seen: set[tuple[int, int]] = set()
    waiting = [path]
    while waiting:
        one = waiting.pop()
        try:
            found = one.lstat()
            if stat.S_ISDIR(found.st_mode):
                _count_folder(size, found)
                with os.scandir(one) as entries:
                    waiting += [Path(entry.path) for entry in entries]
            elif (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                _count_file(size, found)
        except FileNotFoundError:
            continue
        except OSError:
            size.foreign += 1
        if size.files + len(waiting) > MOST_ENTRIES or time.monotonic() > until:
            size.whole = False
            break
    return size


def _count_folder(size: Size, found: os.stat_result) -> None:
    size.bytes += found.st_blocks * 512
    size.foreign += 0 if is_mine(found) else 1


def _count_file(size: Size, found: os.stat_result) -> None:
    size.bytes += found.st_blocks * 512
    size.files += 1
    size.changed_at = max(size.changed_at, found.st_mtime)
    size.used_at = max(size.used_at, found.st_mtime, found.st_atime if stat.S_ISREG(found.st_mode) else 0.0)
    size.foreign += 0 if is_mine(found) else 1
