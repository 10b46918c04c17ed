"""What is in use now: paths that processes hold open, run from or stand in, as far as this account may see."""

import bisect
import os
import time
from pathlib import Path

from deployments.stacks.retire import users

JUST_NOW_S = 600.0  # what others hold open cannot be seen; what changed so lately counts as in use


class Holders:
    """One look at all processes. `who` names one that uses a path or something below it, '' where none does."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self.paths: dict[str, str] = {}
        for one in proc.glob("[0-9]*"):
            if int(one.name) == os.getpid():
                continue
            for name in _links(one):
                self.paths.setdefault(name, one.name)
        self.names = sorted(self.paths)

    def who(self, full: Path) -> str:
        path = os.path.realpath(full)
        below = self.names[bisect.bisect_left(self.names, f"{path}/") :][:1]
        found = path if path in self.paths else next((name for name in below if name.startswith(f"{path}/")), "")
        return f"pid {self.paths[found]}" if found else ""

    def who_works_with(self, folder: Path) -> str:
        """The same, with programs and libraries that run from it."""
        return self.who(folder) or next((f"pid {found}" for found in users(Path(os.path.realpath(folder)))), "")


def _links(one: Path) -> list[str]:
    """Targets of a process' open files, program and folder; none where it is another account's."""
    found = []
    try:
        names = [one / "exe", one / "cwd", *(one / "fd").iterdir()]
    except OSError:
        return []
    for name in names:
        try:
            found.append(os.readlink(name).removesuffix(" (deleted)"))  # noqa: PTH115 - the text as it stands
        except OSError:
            continue
    return [path for path in found if path.startswith("/") and not path.startswith(("/dev/", "/proc/"))]


def is_fresh(changed_at: float) -> bool:
    return time.time() - changed_at < JUST_NOW_S


def writer_lives(name: str) -> bool:
    """Whether the process lives that a log of CANN is named after: `plog-312_2026….log`, `device-312_….log`."""
    number = name.removesuffix(".log").partition("_")[0].rpartition("-")[2]
    return number.isdecimal() and len(number) < 10 and Path(f"/proc/{number}").exists()
