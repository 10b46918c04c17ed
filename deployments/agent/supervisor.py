"""Keeps a few programs running: the agent's own, and the console's under `make up`.

Children die with the supervisor, however it dies; what has made a session of its own (job runners) lives on.
Standard library only, one thread, no wake-up while nothing happens.
"""

import functools
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from deployments import locks
from deployments.agent import processes
from deployments.agent.logs import LogFile, Prefixer
from deployments.agent.own_log import OwnLog
from deployments.steps import Text

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
SETTLED_S = 60.0  # up for so long, a program counts as well again
STOP_S = 10.0
READY_POLL_S = 0.05


@dataclass(frozen=True)
class Program:
    """One program. It is started when all before it are ready; `ready` is asked until it says yes.

    `env` replaces the whole environment. `death_signal` is what it gets when the supervisor itself dies.
    With `may_finish` exit code 0 says that its work is done, and it is not started again.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    ready: Callable[[], bool] | None = None
    ready_s: float = 30.0
    stop_s: float = STOP_S
    death_signal: int = signal.SIGKILL
    may_finish: bool = False


class AlreadyRunning(Exception):
    """Another supervisor holds the lock; `text` says so, with its pid."""

    def __init__(self, lock: Path, pid: str) -> None:
        self.text = Text(
            f"已经在运行（进程 {pid or '未知'}，锁 {lock}）。请先停止它，再启动。",
            f"It runs already (process {pid or 'unknown'}, lock {lock}). Stop it first, then start again.",
        )
        super().__init__(self.text.en)


class NotReady(Exception):
    """A program that did not become ready at the first start; `text` says which."""

    def __init__(self, program: Program, last_lines: Sequence[str]) -> None:
        tail = "\n".join(last_lines)
        self.text = Text(
            f"{program.name} 在 {program.ready_s:g} 秒内没有就绪，已全部停止。它最后的输出：\n{tail}",
            f"{program.name} was not ready within {program.ready_s:g} s; everything was stopped. It said last:\n{tail}",
        )
        super().__init__(self.text.en)


@dataclass
class Child:
    """A program and its present process."""

    program: Program
    output: Prefixer
    process: "subprocess.Popen[bytes] | None" = None
    started_at: float = 0.0
    pause: float = FIRST_PAUSE_S
    start_at: float | None = None  # when it is started again
    restarts: int = 0

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None


@dataclass
class Supervisor:
    """`run` starts everything in order, keeps it running, and ends it in reverse order on SIGTERM or SIGINT.

    Without `log_folder` the programs' lines go to standard output, each with its program's name. Raises
    AlreadyRunning when the lock is held (`lock` None: the caller holds one), NotReady when a program does
    not become ready at the first start.
    """

    programs: Sequence[Program]
    lock: Path | None
    log_folder: Path | None = None
    on_ready: Callable[[], None] | None = None
    own_log: OwnLog | None = None  # gets the lines, too
    children: list[Child] = field(default_factory=list)
    stopping: bool = False
    hurried: bool = False

    def run(self) -> int:
        held = self._take_lock()
        self.selector = selectors.DefaultSelector()
        self._catch_signals()
        self.dying: dict[int, processes.DieWithParent] = {}
        self.children = [Child(program, self._output(program.name)) for program in self.programs]
        try:
            self._start_all()
            while not self.stopping:
                self._turn(self._next_start_s())
                self._restart_due()
        finally:
            self._stop_all()
            self.selector.close()
            if self.own_log is not None:
                self.own_log.close()
            if held is not None:
                os.close(held)
        return 0

    def _take_lock(self) -> int | None:
        if self.lock is None:
            return None
        self.lock.parent.mkdir(parents=True, exist_ok=True)
        held = locks.take_lock(self.lock)
        if held is None:
            raise AlreadyRunning(self.lock, self.lock.read_text()[:20].strip())
        os.ftruncate(held, 0)
        os.write(held, f"{os.getpid()}\n".encode())
        return held

    def _catch_signals(self) -> None:
        """Signals wake the loop by a pipe. Handlers, not SIG_IGN, which children would inherit."""
        self.wakeup, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        self.selector.register(self.wakeup, selectors.EVENT_READ)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._asked_to_stop)

    def _asked_to_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.hurried = self.stopping
        self.stopping = True

    def _output(self, name: str) -> Prefixer:
        also = functools.partial(self.own_log.take, name) if self.own_log is not None else None
        if self.log_folder is None:
            width = max(len(program.name) for program in self.programs)
            return Prefixer(f"{name:<{width}} | ", sys.stdout.buffer, also=also)
        self.log_folder.mkdir(parents=True, exist_ok=True)
        return Prefixer("", LogFile(self.log_folder / f"{name}.log"), stamped=True, also=also)

    def _start_all(self) -> None:
        for child in self.children:
            self._start(child)
            self._await_ready(child)
            if self.stopping:
                return
        if self.on_ready:
            self.on_ready()

    def _await_ready(self, child: Child) -> None:
        ready, until = child.program.ready, time.monotonic() + child.program.ready_s
        while ready and not self.stopping and not ready():
            if time.monotonic() > until:
                raise NotReady(child.program, child.output.last)
            self._turn(READY_POLL_S)
            self._restart_due()

    def _start(self, child: Child) -> None:
        program = child.program
        child.start_at, child.started_at = None, time.monotonic()
        number = int(program.death_signal)
        dying = self.dying.setdefault(number, processes.DieWithParent(number))

        def enter() -> None:
            os.setpgrp()
            dying()

        try:
            child.process = subprocess.Popen(
                list(program.argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(program.env) if program.env is not None else None,
                cwd=program.cwd,
                bufsize=0,
                preexec_fn=enter,  # safe: one thread
            )
        except OSError as error:
            child.output.feed(f"{program.argv[0]}: {os.strerror(error.errno or 0)}\n".encode())
            self._plan_restart(child)
            return
        assert child.process.stdout is not None
        descriptor = child.process.stdout.fileno()
        os.set_blocking(descriptor, False)
        self.selector.register(descriptor, selectors.EVENT_READ, child)

    def _next_start_s(self) -> float | None:
        due = [child.start_at for child in self.children if child.start_at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _restart_due(self) -> None:
        now = time.monotonic()
        for child in self.children:
            if child.start_at is not None and child.start_at <= now and not self.stopping:
                child.restarts += 1
                self._start(child)

    def _turn(self, timeout: float | None) -> None:
        """Wait for output, a signal or a child's end, and deal with it."""
        for key, _events in self.selector.select(timeout):
            if key.fd == self.wakeup:
                os.read(self.wakeup, 4096)
            else:
                self._read(key.fd, key.data)
        for child in self.children:
            if child.process is not None and child.process.poll() is not None:
                self._ended(child)

    def _read(self, descriptor: int, child: Child) -> None:
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return
        if data:
            child.output.feed(data)
        else:
            self.selector.unregister(descriptor)

    def _ended(self, child: Child) -> None:
        """A program's process has ended: nothing of its group stays, and it is planned again unless we stop."""
        process = child.process
        assert process is not None and process.stdout is not None
        processes.signal_group(process.pid, signal.SIGKILL)
        descriptor, seen = process.stdout.fileno(), -1
        while descriptor in self.selector.get_map() and child.output.count != seen:
            seen = child.output.count
            self._read(descriptor, child)
        if descriptor in self.selector.get_map():  # a process of a session of its own holds the pipe
            self.selector.unregister(descriptor)
        process.stdout.close()
        child.output.close()
        child.process = None
        finished = child.program.may_finish and process.returncode == 0
        if not self.stopping and not finished:
            child.output.feed(f"ended with {_ending(process.returncode)}\n".encode())
            self._plan_restart(child)

    def _plan_restart(self, child: Child) -> None:
        now = time.monotonic()
        if now - child.started_at >= SETTLED_S:
            child.pause = FIRST_PAUSE_S
        child.start_at = now + child.pause
        child.pause = min(child.pause * 2, MAX_PAUSE_S)

    def _stop_all(self) -> None:
        """In reverse order, each with the time it is given; a second signal cuts that short."""
        self.stopping = True
        for child in reversed(self.children):
            if child.process is None:
                continue
            process, until = child.process, time.monotonic() + child.program.stop_s
            process.send_signal(signal.SIGTERM)
            while child.process is not None and time.monotonic() < until and not self.hurried:
                self._turn(min(1.0, max(0.0, until - time.monotonic())))
            if child.process is not None:
                processes.signal_group(process.pid, signal.SIGKILL)
                process.wait()
                self._ended(child)
            child.output.close()


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else processes.signal_name(-code)
