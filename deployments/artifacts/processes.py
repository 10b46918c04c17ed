"""A program of a stack that is started, listened to and ended with everything it has started."""

import collections
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

ENDS_S = 3.0  # vLLM ends so fast after SIGTERM; the job's ladder waits 5 s between its rungs
KEPT = 200  # lines


class Stopped(Exception):
    """The step is to end: it was cancelled, or its time is over."""


class Program:
    """One that runs; what it prints goes to our own output, and its last lines are kept."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(env),
            preexec_fn=os.setpgrp,  # a group of its own, so that an engine's further processes end with it
        )  # fmt: skip
        self.last: collections.deque[bytes] = collections.deque(maxlen=KEPT)
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        printed = self.process.stdout
        for line in iter(lambda: printed.readline(8192), b""):
            self.last.append(line)
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    @property
    def output(self) -> str:
        """The last lines of it; whole once the program has ended."""
        if self.process.poll() is not None:
            self.listener.join(2)
        return b"".join(tuple(self.last)).decode(errors="replace")

    def end(self) -> None:
        """End all of the group: politely, then for good."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(ENDS_S)
        self._signal(signal.SIGKILL)
        self.process.wait()
        self.listener.join(2)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


@contextlib.contextmanager
def running(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[Program]:
    """A program, until the block ends: however it does, nothing of the group is left."""
    program = Program(argv, env)
    try:
        yield program
    finally:
        _heed(signal.SIG_IGN)  # a second signal must not cut off the ending
        program.end()
        _heed(_stop)


def stop_by_signals() -> None:
    """From here on SIGINT and SIGTERM raise Stopped."""
    _heed(_stop)


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise Stopped


def _heed(handler: object) -> None:
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, handler)  # type: ignore[arg-type]


def environment() -> dict[str, str]:
    """Ours, without what is for our own Python; nothing is looked for in the network."""
    left_out = ("PYTHONPATH", "ASCEND_REASON", "ASCEND_ITEMS", "ASCEND_CONFIG", "EVALUATE_PASTED")
    env = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**env, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
            "PYTHONUNBUFFERED": "1"}  # fmt: skip
