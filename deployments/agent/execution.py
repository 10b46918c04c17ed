"""Runs one step: its process group, its output into the spool, its deadline, and the ladder that ends it."""

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deployments.agent import processes
from deployments.agent.growth import Growth
from deployments.agent.heard import Heard
from deployments.agent.items import ItemReader
from deployments.agent.lines import LineMaker
from deployments.agent.writer import SpoolWriter
from deployments.steps import Step, Text, resolve

RUNGS = (("interrupt", signal.SIGINT), ("terminate", signal.SIGTERM), ("kill", signal.SIGKILL))
RUNG_S = 5.0
LEFT_OVER_S = 2.0  # how long processes that a step leaves behind may take to end
DRAIN_S = 0.5  # how long output is awaited after the end, where a detached daemon holds the pipe
POLL_S = 0.05
READ_BYTES = 65536
# A program that writes line by line would wake us for each: we let so much come together.
SIP_BYTES = 8192
SIP_S = 0.002
F_SETPIPE_SZ = 1031
PIPE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Outcome:
    """How a step ended: `state` is succeeded, skipped, failed or cancelled; `exit` is None where nothing ran.

    `late` says that we ended it, because its time was over.
    """

    state: str
    exit: int | None = None
    reason: Text | None = None
    late: bool = False


class StepRun:
    """One step from start to end. `is_cancelled` is asked often and must be cheap; `wakeup` gets a byte per signal."""

    def __init__(self, writer: SpoolWriter, items: Path, is_cancelled: Callable[[], bool], wakeup: int) -> None:
        self.writer = writer
        self.items = ItemReader(items)
        self.is_cancelled = is_cancelled
        self.wakeup = wakeup
        self.selector = selectors.DefaultSelector()
        self.makers: dict[int, LineMaker] = {}
        self.process: subprocess.Popen[bytes]
        self.rung = -1  # of the ladder, -1 before its first
        self.next_rung_at = float("inf")
        self.is_late = False
        self.is_let_be = False  # it was said that a step goes on to its end
        self.items_at = 0.0
        self.asked = ""  # the question that it waits with

    def run(self, step: Step, env: Mapping[str, str], folder: Path) -> Outcome:
        self.heard, self.growth = Heard(step), Growth(step.fills)
        problem = self._start(step, env, folder)
        if problem:
            self.items.close()
            return problem
        self.deadline = time.monotonic() + step.timeout_s
        self._follow()
        self._end_left_overs()
        self._drain(DRAIN_S)
        for maker in self.makers.values():
            maker.close()
        self._write_items(self.items.close())
        self.selector.close()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return self._outcome(step)

    def _start(self, step: Step, env: Mapping[str, str], folder: Path) -> Outcome | None:
        argv = resolve(step.argv)
        try:
            self.process = subprocess.Popen(
                argv,
                # Root's processes take no signal of ours: their helper reads the rungs here.
                stdin=subprocess.PIPE if step.needs_root else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                cwd=folder,
                bufsize=0,
                preexec_fn=os.setpgrp,  # safe: the runner has one thread
            )
        except OSError as error:
            return _not_started(argv[0] if argv else "", error)
        self.selector.register(self.wakeup, selectors.EVENT_READ)
        for stream, kind in ((self.process.stdout, "o"), (self.process.stderr, "e")):
            assert stream is not None
            _widen(stream.fileno())
            os.set_blocking(stream.fileno(), False)
            self.makers[stream.fileno()] = LineMaker(self.writer, kind)
            self.selector.register(stream, selectors.EVENT_READ)
        return None

    def _follow(self) -> None:
        """Until the step's own process has ended."""
        while self.process.poll() is None:
            self._climb()
            self._turn(self._wait_s())

    def _wait_s(self) -> float:
        waits = [POLL_S, self.next_rung_at - time.monotonic(), self.writer.due_in()]
        waits += [maker.due_in() for maker in self.makers.values()]
        return max(0.0, min(wait for wait in waits if wait is not None))

    def _turn(self, timeout: float) -> None:
        """Wait for output once, and write what is due."""
        size = 0
        for key, _events in self.selector.select(timeout):
            if key.fd == self.wakeup:
                os.read(self.wakeup, 4096)
            else:
                size += self._read(key.fd)
        if 0 < size < SIP_BYTES:
            time.sleep(SIP_S)
        now = time.monotonic()
        if now - self.items_at >= POLL_S / 2:
            self.items_at = now
            self._write_items(self.items.read())
        for maker in self.makers.values():
            maker.tick()
        if words := self.growth.words(self.heard.at):
            self.writer.say(words)
        if self.writer.due_in() == 0.0:
            self.writer.flush()

    def _read(self, descriptor: int) -> int:
        """One read; how many bytes it gave. An ended stream is watched no more."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if data:
            self.makers[descriptor].feed(data)
            self.heard.feed(descriptor, data)
        else:
            self.selector.unregister(descriptor)
        return len(data)

    def _write_items(self, found: list[dict[str, object] | str]) -> None:
        for item in found:
            if isinstance(item, str):
                self.writer.say(f"无法识别的检查项 Not an item: {item}")
            else:
                self.writer.event("told" if "told" in item else "item", **item)

    def _climb(self) -> None:
        """Begin the ladder when the step is cancelled or late, and take its next rung when that is due."""
        now = time.monotonic()
        if self.rung < 0:
            cancelled, self.is_late = self._is_to_end(now)
            self.asked = "" if cancelled or self.is_late else self.heard.question()
            if not cancelled and not self.is_late and not self.asked:
                return
            self.next_rung_at = now
        if now < self.next_rung_at:
            return
        self.rung += 1
        name, number = RUNGS[self.rung]
        if self.is_late:
            self.writer.say(f"已过时限，发送 {number.name}。Past its deadline: sent {number.name}.")
        elif self.asked:
            self.writer.say(f"它在等待回答，发送 {number.name}。It waits for an answer: sent {number.name}.")
        else:
            self.writer.event("cancelling", rung=name)
        if number == signal.SIGKILL:
            processes.signal_session(os.getsid(0), number, but=frozenset({os.getpid()}))
            processes.signal_group(self.process.pid, number)
        else:
            processes.signal_group(self.process.pid, number)
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended
                os.write(self.process.stdin.fileno(), f"{name}\n".encode())
        self.next_rung_at = now + RUNG_S if self.rung + 1 < len(RUNGS) else float("inf")

    def _is_to_end(self, now: float) -> tuple[bool, bool]:
        """Whether somebody cancels it, and whether it is late instead; it may be one that goes on to its end."""
        cancelled = self.is_cancelled()
        is_late = not cancelled and now >= self.deadline
        if not self.heard.step.to_its_end:
            return cancelled, is_late
        if (cancelled or is_late) and not self.is_let_be:
            self.is_let_be = True
            self.writer.say(
                "这一步不能中途停止，等它自己结束。This step must not be cut off: it goes on until it ends by itself."
            )
        return False, False

    def _end_left_overs(self) -> None:
        """End what the step left running in our session; a daemon that made a session of its own lives on."""
        session, own = os.getsid(0), frozenset({os.getpid()})
        for number, patience in ((signal.SIGTERM, LEFT_OVER_S), (signal.SIGKILL, LEFT_OVER_S)):
            count = processes.signal_session(session, number, but=own)
            if not count:
                return
            self.writer.say(f"留下 {count} 个进程，发送 {number.name}。{count} left behind: sent {number.name}.")
            until = time.monotonic() + patience
            while time.monotonic() < until and len(processes.session_members(session)) > 1:
                self._turn(0.02)

    def _drain(self, patience: float) -> None:
        until = time.monotonic() + patience
        while len(self.selector.get_map()) > 1 and time.monotonic() < until:
            self._turn(0.02)

    def _outcome(self, step: Step) -> Outcome:
        code = self.process.returncode
        return judge(step, code, self.heard, late=self.is_late, asked=self.asked, cancelled=self.rung >= 0)


def judge(step: Step, code: int, heard: Heard, *, late: bool, asked: str, cancelled: bool) -> Outcome:
    """How a step ended, by its exit code (below zero: a signal) and what it printed. `asked` is the question that it
    was ended with; what was ended because it was late or asked is not `cancelled`."""
    number = code if code >= 0 else 128 - code
    if late:
        return Outcome(
            "failed",
            number,
            Text(
                f"在时限 {step.timeout_s:g} 秒内没有结束，已被停止。请查看它最后的输出，再决定是否重试。",
                f"It did not end within its {step.timeout_s:g} s and was stopped. "
                "See its last lines, then decide whether to try again.",
            ),
            late=True,
        )
    if asked:
        return Outcome("failed", number, _asks(asked))
    if cancelled:
        return Outcome("cancelled", number, Text("已按请求取消。", "Cancelled on request."))
    if code in step.skips:
        return Outcome("skipped", code)
    if code in step.accepts:
        return Outcome("succeeded", code) if heard.said else Outcome("failed", code, heard.meaning or UNSAID)
    if question := heard.last_question():
        return Outcome("failed", number, _asks(question))
    if heard.meaning:
        return Outcome("failed", number, heard.meaning)
    if code < 0:
        name = processes.signal_name(-code)
        words = Text(f"被信号 {name} 结束。", f"It was ended by {name}.")
        return Outcome("failed", number, words)
    return Outcome("failed", number, Text(f"退出码 {number}。", f"It ended with exit code {number}."))


UNSAID = Text(
    "命令结束时没有报错，但也没有打印它成功时会打印的话，因此按失败处理。请查看它最后的输出。",
    "It ended without an error, but did not print what it prints on success, so it counts as failed. "
    "See its last lines.",
)


def _asks(question: str) -> Text:
    return Text(
        f"它提出了问题“{question}”，而这里没有人回答。请在服务器上手动运行这条命令并回答，再重试作业。",
        f"It asks “{question}”, and nobody is there to answer. Run the command by hand on the server and answer it, "
        "then try the job again.",
    )


def _widen(descriptor: int) -> None:
    """A larger pipe: a chatty program waits less for us. Where this user may not have one, the usual one stays."""
    try:
        fcntl.fcntl(descriptor, F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        pass


def _not_started(program: str, error: OSError) -> Outcome:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return Outcome(
            "failed",
            127,
            Text(
                f"这台服务器上没有命令 {program}。请安装它，或将其目录加入 PATH，再重试。",
                f"There is no {program} on this server. Install it or add its folder to PATH, then try again.",
            ),
        )
    words = os.strerror(error.errno or 0)
    return Outcome(
        "failed",
        126,
        Text(
            f"无法启动 {program}（{words}）。请检查该文件与运行用户的权限，再重试。",
            f"{program} could not be started ({words}). Check the file and the rights of this user, then try again.",
        ),
    )
