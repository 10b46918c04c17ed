"""Runs one attempt of a job, in a session of its own, whatever happens to worker, link, Redis or console.

    python -m deployments.agent.runner <attempt folder> --config <config.json>

Holds the attempt's lock for life. Everything it has to tell goes to the spool; `ended` is its last record.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from deployments.agent import ROOT, devices, processes, spool
from deployments.agent.config import Config, load
from deployments.agent.environment import passed_on
from deployments.agent.execution import Outcome, StepRun
from deployments.agent.writer import FULL, SpoolWriter
from deployments.kinds import load as load_kind
from deployments.steps import PYTHON, Step, Text, read_params


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
        return self.signals.terminated or (self.folder / "cancel").exists()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="deployments.agent.runner")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--config", type=Path, required=True)
    options = parser.parse_args(argv)
    folder = options.folder.absolute()
    if os.getsid(0) != os.getpid():
        os.setsid()
    signals = Signals()
    try:
        lock = processes.take_lock(folder / "lock")
        if lock is None or not write_pid(folder):
            return 0  # another runner has or had this attempt
        writer = SpoolWriter(folder / "lines")
    except OSError as error:
        if error.errno not in FULL:
            raise
        (folder / "pid").unlink(missing_ok=True)  # nothing was begun: the next runner may
        return spool.NO_ROOM
    try:
        attempt = Attempt(folder, load(options.config), json.loads((folder / "spec.json").read_text()), writer, signals)
        state, code, reason = run(attempt)
    except Exception:
        import traceback  # every runner would pay for loading it

        for line in traceback.format_exc().splitlines():
            writer.say(line)
        state, code, reason = "failed", None, BROKEN
    writer.event("ended", state=state, exit=code, reason=list(reason) if reason else None)
    writer.close()
    return 0


BROKEN = Text(
    "运行器自身出错，详情见日志末尾。请报告此问题，再重试作业。",
    "The runner itself failed; the end of the log says how. Report it, then try the job again.",
)
CANCELLED = Text("已按请求取消。", "Cancelled on request.")


def write_pid(folder: Path) -> bool:
    """Leave our identity; False when a runner has been here before. Appears whole or not at all."""
    path = folder / "pid"
    if spool.has_begun(folder):
        return False
    own = processes.identity(os.getpid())
    assert own is not None
    spool.write_whole(path, json.dumps(own._asdict()).encode())
    return True


def run(attempt: Attempt) -> tuple[str, int | None, Text | None]:
    """All steps in order; state, exit code and reason of the whole."""
    spec, writer = attempt.spec, attempt.writer
    writer.event("started", attempt=spec["attempt"], pid=os.getpid(), host=os.uname().nodename)
    kind = load_kind(spec["kind"])
    steps: list[Step] = kind.steps(read_params(kind.Params, spec["params"]))
    verdict: tuple[str, int | None, Text | None] = ("succeeded", 0, None)
    for n, step in enumerate(steps, start=1):
        writer.event("step", n=n, of=len(steps), title=list(step.title), argv=_shown(step.argv))
        if verdict[0] != "succeeded":
            writer.event("step_end", n=n, state="skipped", exit=None, took_s=0.0)
            continue
        began = time.monotonic()
        outcome = run_step(attempt, n, step)
        if outcome.reason and outcome.state == "failed":
            writer.say(f"{outcome.reason.zh} {outcome.reason.en}")
        took_s = round(time.monotonic() - began, 3)
        writer.event("step_end", n=n, state=outcome.state, exit=outcome.exit, took_s=took_s)
        if outcome.state == "cancelled" or (outcome.state == "failed" and not step.may_fail):
            verdict = (outcome.state, outcome.exit, _reason(n, step, outcome))
    return verdict


def run_step(attempt: Attempt, n: int, step: Step) -> Outcome:
    if attempt.is_cancelled():
        return Outcome("cancelled", None, CANCELLED)
    if step.needs_root and os.geteuid() != 0 and not attempt.config.simulated:
        return Outcome(
            "failed",
            None,
            Text(
                "这一步需要 root 权限，而代理不是以 root 运行。请以 root 运行代理，再重试。",
                "This step needs root, and the agent does not run as root. Run the agent as root, then try again.",
            ),
        )
    items = attempt.folder / f"items-{n}"
    try:
        env = environment(attempt, step, items)
    except devices.NoSuchNpu as error:
        return Outcome("failed", None, error.text)
    note_step(attempt, n)
    running = StepRun(attempt.writer, items, attempt.is_cancelled, attempt.signals.wakeup)
    return running.run(step, env, attempt.folder)


def note_step(attempt: Attempt, n: int) -> None:
    """Leave the step's number for whoever buries us; a full disk must not end a job that can go on."""
    path = attempt.folder / "step"
    try:
        spool.write_whole(path, json.dumps({"n": n}).encode())
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)  # no number is better than that of the step before
        words = os.strerror(error.errno or 0)
        attempt.writer.say(f"无法记下步骤编号（{words}）。The step's number could not be noted ({words}).")


def environment(attempt: Attempt, step: Step, items: Path) -> dict[str, str]:
    """What a step's program sees: a few of our own variables, the server's, the step's. Raises NoSuchNpu."""
    env = passed_on()
    env.setdefault("LANG", "C.UTF-8")
    env["PYTHONUNBUFFERED"] = "1"
    env["PYTHONIOENCODING"] = "utf-8"
    if step.argv and step.argv[0] in (PYTHON, sys.executable):
        env["PYTHONPATH"] = str(ROOT)
    env |= attempt.config.env
    env |= step.env
    env["ASCEND_ITEMS"] = str(items)
    env["ASCEND_ATTEMPT"] = attempt.spec["attempt"]
    if step.npus:
        env["ASCEND_RT_VISIBLE_DEVICES"] = devices.visible(attempt.config.state_dir, step.npus)
    return env


def _shown(argv: list[str]) -> list[str]:
    """The command as an operator may read it, within the size of a record."""
    return [word[:500] for word in argv[:40]]


def _reason(n: int, step: Step, outcome: Outcome) -> Text | None:
    if outcome.state == "cancelled" or outcome.reason is None:
        return outcome.reason
    return Text(
        f"第 {n} 步“{step.title.zh}”失败：{outcome.reason.zh}",
        f"Step {n} “{step.title.en}” failed. {outcome.reason.en}",
    )


if __name__ == "__main__":
    sys.exit(main())
