"""One run of a job: its folder, what it was asked for, where it tells what happens, what its programs see."""

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from deployments.agent import ROOT, devices, stack_root
from deployments.agent.config import Config
from deployments.agent.environment import passed_on
from deployments.agent.writer import SpoolWriter
from deployments.steps import PYTHON, Step


class Signals:
    """SIGTERM asks for a cancel; SIGINT and SIGHUP are for others; every signal wakes the loop.

    Handlers, not SIG_IGN, which the steps would inherit.
    """

    def __init__(self) -> None:
        self.terminated = False
        self.wakeup, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            self.terminated = True


@dataclass(frozen=True)
class Attempt:
    """What one run works with."""

    folder: Path
    config: Config
    spec: dict[str, Any]
    writer: SpoolWriter
    signals: Signals

    def is_cancelled(self) -> bool:
        return self.signals.terminated or self.is_unwanted()

    def is_unwanted(self) -> bool:
        """Whether somebody asked for a cancel; a signal alone may come from a server that shuts down."""
        return (self.folder / "cancel").exists()


def root_of(config: Config) -> Path:
    """Below what the files that evidence names lie; those of a simulated server have a folder of their own."""
    return config.root if config.simulated else Path("/")


def environment(attempt: Attempt, step: Step, items: Path) -> dict[str, str]:
    """What a step's program sees: a few of our own variables, the server's, the step's. Raises NoSuchNpu."""
    env = passed_on()
    env.setdefault("LANG", "C.UTF-8")
    env["PYTHONUNBUFFERED"] = "1"
    env["PYTHONIOENCODING"] = "utf-8:backslashreplace"  # half a character in a name ends no program
    if step.argv and step.argv[0] in (PYTHON, sys.executable):
        env["PYTHONPATH"] = str(ROOT)
        env["ASCEND_CONFIG"] = str(attempt.config.path)
        env["ASCEND_STATE"] = str(attempt.config.state_dir)
        env["ASCEND_STACKS"] = stack_root.of(attempt.config)
    env |= attempt.config.env
    env |= step.env
    env["ASCEND_ITEMS"] = str(items)
    env["ASCEND_ATTEMPT"] = attempt.spec["attempt"]
    if step.npus:
        env["ASCEND_RT_VISIBLE_DEVICES"] = devices.visible(attempt.config.state_dir, step.npus)
    return env
