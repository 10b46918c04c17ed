"""Processes by their true identity (a pid alone may be given out again), sessions, and how they are ended."""

import os
import signal
from pathlib import Path
from typing import NamedTuple

PR_SET_PDEATHSIG = 1


class Identity(NamedTuple):
    """One process for ever: a pid is unique only together with its start time (clock ticks since boot) and the boot."""

    pid: int
    started: int
    boot_id: str


class Stat(NamedTuple):
    """What /proc/<pid>/stat tells that we need."""

    state: str
    ppid: int
    pgid: int
    sid: int
    started: int


def boot_id() -> str:
    """This boot of the machine; '' where it cannot be read. Only tests set ASCEND_BOOT_ID_FILE."""
    try:
        path = os.environ.get("ASCEND_BOOT_ID_FILE", "/proc/sys/kernel/random/boot_id")
        return Path(path).read_text().strip()
    except OSError:
        return ""


def stat(pid: int) -> Stat | None:
    """None where there is no such process. The name may hold blanks and brackets, so fields count from the last one."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - called for every process of the machine
            fields = file.read().rpartition(b")")[2].split()
        return Stat(fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def identity(pid: int) -> Identity | None:
    found = stat(pid)
    return Identity(pid, found.started, boot_id()) if found else None


def lives(who: Identity) -> bool:
    """Whether that very process is alive."""
    found = stat(who.pid)
    return found is not None and found.state not in "ZX" and identity(who.pid) == who


def session_members(sid: int) -> list[int]:
    """Pids of the living processes of one session, its leader included; zombies are dead."""
    members = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - a Path for each process of the machine costs more than its stat
        if name.isdecimal():
            found = stat(int(name))
            if found and found.sid == sid and found.state not in "ZX":
                members.append(int(name))
    return members


def left_of(who: Identity) -> list[int]:
    """Pids of what lives of the session that `who` began, also where it is gone itself. The session's number is given
    out again only when nothing is left of it, so nobody else is among them."""
    there = stat(who.pid)
    if who.boot_id != boot_id() or (there is not None and there.started != who.started):
        return []
    return session_members(who.pid)


def signal_session(sid: int, number: int, *, but: frozenset[int] = frozenset()) -> int:
    """Send `number` to every process of a session but those named; returns how many were there."""
    members = [pid for pid in session_members(sid) if pid not in but]
    for pid in members:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass
    return len(members)


def signal_group(pgid: int, number: int) -> None:
    try:
        os.killpg(pgid, number)
    except (ProcessLookupError, PermissionError):
        pass


def signal_name(number: int) -> str:
    """`SIGKILL`, or the number where this Python has no name for it."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class DieWithParent:
    """A `preexec_fn`: the child gets `number` when its parent dies, however the parent dies.

    Made before the fork, so that the child loads nothing; only for parents with one thread.
    """

    def __init__(self, number: int = signal.SIGKILL) -> None:
        import ctypes  # only supervisors need it, and every runner would pay for loading it

        self.number = int(number)
        self.parent = os.getpid()
        self.prctl = ctypes.CDLL(None, use_errno=True).prctl

    def __call__(self) -> None:
        self.prctl(PR_SET_PDEATHSIG, self.number, 0, 0, 0)
        if os.getppid() != self.parent:  # it died between fork and prctl
            os._exit(1)
