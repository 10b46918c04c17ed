"""Looks after attempts: starts a runner for each claim, knows who lives, and ends what a dead runner left behind."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deployments import locks
from deployments.agent import ROOT, processes, reboots, spool
from deployments.agent.config import Config
from deployments.steps import Text

log = logging.getLogger("worker")

RUNNER = (sys.executable, "-m", "deployments.agent.runner")
MAX_RUNNERS = 32  # at once: hundreds of jobs in one moment must not take the server's memory and cores
MAX_TRIES = 3
TRY_AGAIN_S = 5.0
LEFT_OVER_S = 2.0
GO_ON_AFTER_S = 5.0  # after a restart: a cancel that was sent meanwhile comes first

DIED = Text(
    "作业的运行器意外终止，它留下的进程已停止。请查看日志与服务器的 dmesg，再重试作业。",
    "The job's runner died, and the processes it left were stopped. See the log and the server's dmesg, "
    "then try the job again.",
)
RESTARTED = Text(
    "作业进行中服务器重启了。请检查最后一步做到了哪里，再重试作业。",
    "The server restarted while the job ran. See how far its last step came, then try the job again.",
)
NEVER_BEGAN = Text(
    "作业的运行器启动不了，详情见日志。请修复代理的安装，再重试作业。",
    "The job's runner could not be started; the log says why. Mend the agent's installation, then try the job again.",
)

NOT_RESTARTED = Text(
    "服务器没有在 {minutes} 分钟内重启。后面的步骤没有执行。请查看服务器为何没有重启，再重试作业。",
    "The server did not restart within {minutes} minutes. The steps after this one were not run. "
    "See why it did not, then try the job again.",
)
NOT_AWAITED = Text(
    "已按请求取消，不再等待重启；后面的步骤没有执行。",
    "Cancelled on request, while it waited for the restart; the steps after this one were not run.",
)


@dataclass
class Tries:
    """How often a runner was started for a claim that has none, and when the last time was (monotonic)."""

    count: int = 0
    at: float = float("-inf")


class Adopter:
    """`tick` at start and every moment. Thread-safe only in that one thread calls it."""

    def __init__(self, config: Config, runner: Sequence[str] = RUNNER) -> None:
        self.config = config
        self.runner = list(runner)
        self.finished: set[str] = set()
        self.tries: dict[str, Tries] = {}
        self.children: dict[str, subprocess.Popen[bytes]] = {}  # by attempt
        self.back: dict[str, float] = {}  # since when the server of a waiting attempt is back
        self.announced: set[str] = set()  # of the waiting ones, those whose log says so

    def tick(self) -> list[str]:
        """Look at every attempt once; returns those whose runner lives or was just started."""
        self._bid_farewell()
        found = spool.folders(self.config.attempts)
        self.finished &= {folder.name for folder in found}
        looks = {folder: self._look(folder) for folder in found if folder.name not in self.finished}
        living = [folder.name for folder, look in looks.items() if look == "lives"]
        busy = {_job(name) for name in living} | {_job(folder.name) for folder in looks if self._awaits(folder)}
        waiting = sorted((folder for folder, look in looks.items() if look == "waits"), key=_turn)
        # A job that was lost and is run again may still run here: the new attempt waits for the old one's end.
        waiting = [
            folder
            for folder in waiting
            if _job(folder.name) not in busy or self._awaits(folder) or (folder / "cancel").exists()
        ]
        room = max(0, MAX_RUNNERS - len(living))
        return living + [folder.name for folder in waiting[:room] if self._start(folder)]

    def _awaits(self, folder: Path) -> bool:
        """Whether it has begun, and waits for the server to start anew."""
        return folder.name not in self.finished and reboots.is_left(folder)

    def _bid_farewell(self) -> None:
        """Forget the runners that have ended; one that found no room on the disk has not been a try."""
        for name, child in list(self.children.items()):
            if child.poll() is not None:
                del self.children[name]
                if child.returncode == spool.NO_ROOM and name in self.tries:
                    self.tries[name].count = 0

    def _look(self, folder: Path) -> str:
        """Whether it "lives", "waits" for its runner, or "" when there is nothing to do, yet or any more."""
        if spool.is_over(folder):
            self.finished.add(folder.name)
            self.tries.pop(folder.name, None)
            return ""
        if spool.is_alive(folder):
            return "lives"
        if (mark := reboots.read(folder)) is not None:
            return self._look_at_waiting(folder, mark)
        if not spool.has_begun(folder):
            return "waits"
        bury(folder, DIED)
        return ""

    def _look_at_waiting(self, folder: Path, mark: reboots.Mark) -> str:
        """One that waits for the server to start anew: it goes on, or waits, or its waiting has an end."""
        if (folder / "cancel").exists():
            finish(folder, "cancelled", NOT_AWAITED, mark)
        elif reboots.is_anew(mark, self.config):
            since = self.back.setdefault(folder.name, time.monotonic())
            return "waits" if time.monotonic() - since >= GO_ON_AFTER_S else ""
        elif mark.is_over:
            minutes = f"{mark.within_s / 60:g}"
            finish(folder, "failed", Text(*(text.format(minutes=minutes) for text in NOT_RESTARTED)), mark)
        else:
            self.tries.pop(folder.name, None)
            self.back.pop(folder.name, None)
            if (name := f"{folder.name} {mark.n}") not in self.announced and announce(folder, mark):
                self.announced.add(name)
        return ""

    def _start(self, folder: Path) -> bool:
        tries = self.tries.setdefault(folder.name, Tries())
        now = time.monotonic()
        if folder.name in self.children or now - tries.at < TRY_AGAIN_S:
            return True  # on a crowded machine a runner may take long to take its lock
        if tries.count >= MAX_TRIES:
            mark = reboots.read(folder)
            finish(folder, "failed", NEVER_BEGAN, mark) if mark else bury(folder, NEVER_BEGAN)
            return False
        tries.at = now
        try:
            self.children[folder.name] = spawn(folder, self.config, self.runner)
        except OSError as error:  # no room for its log, or for another process
            log.warning("no runner could be started for %s (%s); trying again", folder.name, error)
            return False
        tries.count += 1
        return True


def _job(attempt: str) -> str:
    """The job's number: the 42 of `a42-2-0f3c5a7e`."""
    return attempt[1:].partition("-")[0]


def _turn(folder: Path) -> tuple[bool, int, int]:
    """Cancelled ones first, which end at once, then by job and attempt: the 42 and 2 of `a42-2-0f3c5a7e`."""
    job, n = folder.name[1:].split("-")[:2]
    return not (folder / "cancel").exists(), int(job), int(n)


def spawn(folder: Path, config: Config, runner: Sequence[str] = RUNNER) -> "subprocess.Popen[bytes]":
    """Start a runner in a session of its own, with nothing of ours but its environment."""
    log = os.open(folder / "runner.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            [*runner, str(folder), "--config", str(config.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=config.state_dir,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
            close_fds=True,
        )
    finally:
        os.close(log)


def bury(folder: Path, reason: Text) -> bool:
    """Write the end of an attempt whose runner is gone; whether it is written: a full disk leaves it for later."""
    identity = spool.runner_identity(folder)
    if identity and identity.boot_id != processes.boot_id():
        reason = RESTARTED
    return finish(folder, "failed", reason)


def finish(folder: Path, state: str, reason: Text, mark: reboots.Mark | None = None) -> bool:
    """Write this end of an attempt that has no runner, and end what its runner left; whether it is written."""
    lock = locks.take_lock(folder / "lock")
    if lock is None:
        return False
    try:
        if spool.is_over(folder):
            return True
        identity = spool.runner_identity(folder)
        if identity and identity.boot_id == processes.boot_id():
            end_session(identity)
        spool.mend_tail(folder / "lines")
        _append(folder / "lines", _last_records(folder, state, reason, mark))
        return True
    except OSError:
        return False
    finally:
        os.close(lock)


def announce(folder: Path, mark: reboots.Mark) -> bool:
    """Write that the attempt waits, where its runner died before it could; whether it is written."""
    lock = locks.take_lock(folder / "lock")
    if lock is None:
        return False
    try:
        if ("waiting_reboot", mark.n) not in spool.said(folder):
            spool.mend_tail(folder / "lines")
            _append(folder / "lines", spool.record("v", reboots.waiting_event(mark)))
        return True
    except OSError:
        return False
    finally:
        os.close(lock)


def end_session(leader: processes.Identity) -> None:
    """End what is left of a dead runner's session. Its number is given out again only when nothing is left."""
    now = processes.stat(leader.pid)
    if now is not None and now.started != leader.started and now.state not in "ZX":
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not processes.signal_session(leader.pid, number):
            return
        until = time.monotonic() + LEFT_OVER_S
        while time.monotonic() < until and processes.session_members(leader.pid):
            time.sleep(0.02)


def _last_records(folder: Path, state: str, reason: Text, mark: reboots.Mark | None) -> bytes:
    lines = b""
    for line in _tail(folder / "runner.log"):
        lines += spool.record("s", line)
    try:
        n = mark.n if mark else json.loads((folder / "step").read_text())["n"]
        if mark is None or ("step_end", n) not in spool.said(folder):
            lines += spool.record("v", spool.event("step_end", n=n, state=state, exit=None, took_s=None))
    except (OSError, ValueError, KeyError):
        pass  # it died between two steps
    return lines + spool.record("v", spool.event("ended", state=state, exit=None, reason=list(reason)))


def _tail(path: Path) -> list[str]:
    """The last lines of a runner's own output, which has some only when it is broken."""
    try:
        text = path.read_bytes()[-8192:].decode(errors="replace")
    except OSError:
        return []
    return ["".join(char if char.isprintable() else " " for char in line) for line in text.splitlines()[-40:]]


def _append(path: Path, data: bytes) -> None:
    """All of it or nothing: without room the file is as before. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, data) != len(data):
            os.ftruncate(descriptor, size)
            raise OSError("no room for the last records")
    finally:
        os.close(descriptor)
