"""Runs a tool for its output: bounded in time and size, and nothing of it left running afterwards."""

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from deployments.agent import processes

MAX_BYTES = 2_100_000  # just above what a parser reads
AFTER_KILL_S = 1.0


class Output(NamedTuple):
    """`code` is None where the tool did not run to its end; `problem` is then not_found, timeout or no_permission."""

    code: int | None
    text: str
    problem: str | None = None


class Run(Protocol):
    """How the sampler runs tools; the demo puts a function of its own here."""

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> Output: ...


def run_tool(argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> Output:
    """Output and errors together, as a terminal shows them. A tool that hangs is killed with its whole group."""
    found = shutil.which(argv[0], path=env.get("PATH"))
    if found is None:
        return Output(None, "", "not_found")
    try:
        process = subprocess.Popen(
            [found, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(env),
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        return Output(None, str(error), "no_permission")
    try:
        text, in_time = _read(process, time.monotonic() + timeout_s)
    finally:
        _end(process)
    return Output(process.returncode, text) if in_time else Output(None, text, "timeout")


def _read(process: "subprocess.Popen[bytes]", until: float) -> tuple[str, bool]:
    """What it printed, and whether it ended in time. What is above MAX_BYTES is read and dropped."""
    assert process.stdout is not None
    kept: list[bytes] = []
    size = 0
    with selectors.DefaultSelector() as selector, process.stdout as stream:
        selector.register(stream, selectors.EVENT_READ)
        while selector.select(max(0.0, until - time.monotonic())):
            data = os.read(stream.fileno(), 65536)
            if not data:
                return b"".join(kept).decode(errors="replace"), _wait(process, until)
            if size < MAX_BYTES:
                kept.append(data)
                size += len(data)
    return b"".join(kept).decode(errors="replace"), False


def _wait(process: "subprocess.Popen[bytes]", until: float) -> bool:
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left. A tool that hangs inside the driver cannot be killed: it is left, not waited for."""
    if process.poll() is None:
        processes.signal_group(process.pid, signal.SIGKILL)
        try:
            process.wait(AFTER_KILL_S)
        except subprocess.TimeoutExpired:
            pass
