"""A job that waits for its server to start anew: the mark that its runner leaves, and what the mark allows.

The order, so that nothing is lost or done twice wherever it is cut:

1. the runner writes the mark, then the event `waiting_reboot`, both synced, then runs the command that restarts the
   server (or leaves that to a person), and ends;
2. the adopter finds the mark: with the boot id that is in it, it goes on waiting; with another one it starts a runner;
3. that runner writes `rebooted` and the end of the step in one piece, and the heading of the next step; the mark goes
   before the command of the next step is started. Until then another runner may do the same again.
"""

import dataclasses
import json
import time
from pathlib import Path

from deployments.agent import processes, spool
from deployments.agent.config import Config

MARK = "reboot"
BOOT_ID = "proc/sys/kernel/random/boot_id"


@dataclasses.dataclass(frozen=True)
class Mark:
    """Step `n` waits since `at` (epoch), `up` (seconds since that boot) for another boot id than this, `within_s`."""

    n: int
    boot_id: str
    at: float
    up: float
    within_s: float
    by_hand: bool

    @property
    def is_over(self) -> bool:
        """Whether its time has passed within the same boot; wall clocks jump at a start, this one does not."""
        return uptime() - self.up > self.within_s


def uptime() -> float:
    """Seconds since this boot, those asleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id(config: Config) -> str:
    """The boot id of the server; a simulated one has its own."""
    if not config.simulated:
        return processes.boot_id()
    try:
        return (config.root / BOOT_ID).read_text().strip()
    except OSError:
        return ""


def is_anew(mark: Mark, config: Config) -> bool:
    """Whether the server has started anew since; a boot id that cannot be read, then or now, says nothing."""
    now = boot_id(config)
    return bool(now and mark.boot_id) and now != mark.boot_id


def leave(folder: Path, config: Config, n: int, within_s: float, *, by_hand: bool) -> Mark:
    """Write the mark, so that it outlives a power cut. Raises OSError where there is no room."""
    mark = Mark(n, boot_id(config), round(time.time(), 3), round(uptime(), 3), within_s, by_hand)
    spool.write_synced(folder / MARK, json.dumps(dataclasses.asdict(mark)).encode())
    return mark


def read(folder: Path) -> Mark | None:
    """The mark; None where there is none."""
    try:
        return Mark(**json.loads((folder / MARK).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def is_left(folder: Path) -> bool:
    return (folder / MARK).exists()


def clear(folder: Path) -> None:
    """The job no longer waits; needs no room on the disk."""
    (folder / MARK).unlink(missing_ok=True)


def waiting_event(mark: Mark) -> str:
    """The text of the event that says so. `until` is by the server's clock; the console reckons by its own."""
    return spool.event(
        "waiting_reboot",
        n=mark.n,
        boot_id=mark.boot_id,
        by_hand=mark.by_hand,
        within_s=mark.within_s,
        until=round(mark.at + mark.within_s),
    )
