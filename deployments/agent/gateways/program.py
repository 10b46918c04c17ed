"""One of a gateway's two programs: started in a session of its own, adopted by the next keeper, started again."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deployments.agent.gateways import folder as folders

FIRST_PAUSE_S = 0.5
MOST_PAUSE_S = 30.0
SETTLED_S = 60.0
KILLED_S = 5.0
MOST_LOG = 10 << 20


@dataclass
class Program:
    """`name` is what its identity and its log are called in `folder`. Its output goes to a file and not to us, so that
    neither a keeper that was killed nor its pipe ends it."""

    folder: Path
    name: str
    restarts: int = -1
    pause: float = FIRST_PAUSE_S
    start_at: float = 0.0
    started_at: float = 0.0
    child: "subprocess.Popen[bytes] | None" = None
    about: Mapping[str, Any] = field(default_factory=dict)  # noted beside its identity

    def is_alive(self) -> bool:
        if self.child is not None and self.child.poll() is not None:
            self.child = None
        return folders.identity(self.folder, self.name) is not None

    def keep(self, argv: Sequence[str], env: Mapping[str, str]) -> bool:
        """Start it where it does not live and its pause is over. True where it was started just now."""
        now = time.monotonic()
        if self.is_alive():
            return False
        if self.started_at and now - self.started_at >= SETTLED_S:
            self.pause, self.started_at = FIRST_PAUSE_S, 0.0
        if now < self.start_at:
            return False
        self.start_at, self.started_at = now + self.pause, now
        self.pause = min(2 * self.pause, MOST_PAUSE_S)
        self.restarts += 1
        self._end_left()  # it would hold the port
        self._start(argv, env)
        return True

    def _start(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        path = self.folder / f"{self.name}.out"
        bound(path)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self.child = subprocess.Popen(
                list(argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, env=dict(env),
                start_new_session=True, close_fds=True,
            )  # fmt: skip
        except OSError as error:
            os.write(log, f"{argv[0]}: {os.strerror(error.errno or 0)}\n".encode())
            return
        finally:
            os.close(log)
        folders.note_identity(self.folder, self.name, self.child.pid, self.about)

    def signal(self, number: int) -> bool:
        who = folders.identity(self.folder, self.name)
        if who is None:
            return False
        try:
            os.kill(who.pid, number)
        except ProcessLookupError:
            return False
        return True

    def end(self, number: int, within_s: float) -> None:
        """`number`, then SIGKILL to what is left of its session."""
        self.signal(number)
        until = time.monotonic() + within_s
        while self.is_alive() and time.monotonic() < until:
            time.sleep(0.05)
        self._end_left()

    def _end_left(self) -> None:
        """SIGKILL to all that is left of the start before, its leader living or not."""
        until = time.monotonic() + KILLED_S
        while (left := folders.left(self.folder, self.name)) and time.monotonic() < until:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)
            self.is_alive()  # takes in a child that has ended

    def last_words(self, most: int = 300) -> str:
        """The last line that it printed, bounded; "" for none."""
        try:
            text = (self.folder / f"{self.name}.out").read_bytes()[-4096:].decode(errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return "".join(c for c in (lines or [""])[-1] if c.isprintable())[:most]


def bound(path: Path) -> bool:
    """Let a log that has grown long begin anew, also while it is written (by O_APPEND alone); its last part stays
    beside it as `….1`. Whether it was so long."""
    try:
        if path.stat().st_size <= MOST_LOG:
            return False
        shutil.copyfile(path, path.with_name(f"{path.name}.1"))
        os.truncate(path, 0)
    except OSError:  # not there, or there is no room for a copy: it is looked at again later
        return False
    return True
