"""Runs one attempt of a job, in a session of its own, whatever happens to worker, link, Redis or console.

    python -m deployments.agent.runner <attempt folder> --config <config.json>

Holds the attempt's lock for life. Everything it has to tell goes to the spool; `ended` is its last record.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

from deployments import locks
from deployments.agent import as_root, devices, processes, reboots, spool
from deployments.agent.attempt import Attempt, Signals, environment, root_of
from deployments.agent.config import Config, load
from deployments.agent.execution import Outcome, StepRun
from deployments.agent.writer import FULL, SpoolWriter
from deployments.kinds import load as load_kind
from deployments.stacks import evidence
from deployments.steps import Evidence, Step, Text, read_params


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="deployments.agent.runner")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--config", type=Path, required=True)
    options = parser.parse_args(argv)
    folder = options.folder.absolute()
    config = load(options.config)
    if config.simulated and is_acted(folder):
        return 0  # its commands are not for this machine: the demo acts them out
    if os.getsid(0) != os.getpid():
        os.setsid()
    signals = Signals()
    try:
        lock = locks.take_lock(folder / "lock")
        mark = reboots.read(folder)
        if lock is None or not (write_pid(folder) if mark is None else take_up(folder, mark, config)):
            return 0  # another runner has or had this attempt, or it waits
        writer = SpoolWriter(folder / "lines")
        writer.masks = config.masks
    except OSError as error:
        if error.errno not in FULL:
            raise
        (folder / "pid").unlink(missing_ok=True)  # nothing was begun: the next runner may
        return spool.NO_ROOM
    try:
        attempt = Attempt(folder, config, json.loads((folder / "spec.json").read_text()), writer, signals)
        verdict = run(attempt, mark)
        if verdict is None:  # who starts with another boot id goes on
            writer.sync()
            writer.close()
            return 0
        state, code, reason = verdict
        if getattr(load_kind(attempt.spec["kind"]), "CHANGES_FACTS", False):
            sampler_looks_again(attempt.config)
    except Exception:
        import traceback  # every runner would pay for loading it

        for line in traceback.format_exc().splitlines():
            writer.say(line)
        state, code, reason = "failed", None, BROKEN
    writer.event("ended", state=state, exit=code, reason=list(reason) if reason else None)
    writer.close()
    return 0


def is_acted(folder: Path) -> bool:
    """Whether the attempt is of a kind that simulated servers act out (`demo/play.py`)."""
    try:
        kind = load_kind(json.loads((folder / "spec.json").read_text())["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(getattr(kind, "ACTED", False))


def sampler_looks_again(config: Config) -> None:
    """Have the facts read anew at once, and not in ten minutes only."""
    with contextlib.suppress(OSError):
        (config.state_dir / spool.LOOK_AGAIN).touch()


BROKEN = Text(
    "运行器自身出错，详情见日志末尾。请报告此问题，再重试作业。",
    "The runner itself failed; the end of the log says how. Report it, then try the job again.",
)
CANCELLED = Text("已按请求取消。", "Cancelled on request.")
TOLD_TO_END = Text(
    "作业的运行器被要求结束（SIGTERM）：服务器正在关机或重启，或有人停止了它。请检查这一步做到了哪里，再重试作业。",
    "The job's runner was told to end (SIGTERM): the server shut down or restarted, or somebody stopped it. "
    "See how far this step came, then try the job again.",
)
NO_ROOM = Text(
    "磁盘已满，无法记下作业在等待重启，因此没有重启服务器。请清出空间，再重试。",
    "The disk is full, so that the job waits for a restart could not be noted, and the server was not restarted. "
    "Free some space, then try again.",
)
TELL_S = 3.0


def write_pid(folder: Path) -> bool:
    """Leave our identity; False when a runner has been here before. Appears whole or not at all."""
    if spool.has_begun(folder):
        return False
    _write_identity(folder)
    return True


def take_up(folder: Path, mark: reboots.Mark, config: Config) -> bool:
    """Go on with an attempt that waited for the server to start anew; False when it has not."""
    if not reboots.is_anew(mark, config):
        return False
    spool.mend_tail(folder / "lines")
    _write_identity(folder)
    return True


def _write_identity(folder: Path) -> None:
    own = processes.identity(os.getpid())
    assert own is not None
    spool.write_whole(folder / "pid", json.dumps(own._asdict()).encode())


Verdict = tuple[str, int | None, Text | None]


def run(attempt: Attempt, mark: reboots.Mark | None = None) -> Verdict | None:
    """All steps in order, those behind `mark` where there is one; state, exit code and reason of the whole.

    None when the job waits for the server to start anew.
    """
    steps = walk(attempt, mark)
    try:
        n, step = next(steps)
        while True:
            never = (lambda: False) if step.always else None
            n, step = steps.send(restart(attempt, n, step) if step.reboot else run_step(attempt, n, step, never))
    except StopIteration as end:
        found: Verdict | None = end.value
        return found


Walk = Generator[tuple[int, Step], Outcome | None, Verdict | None]


def walk(attempt: Attempt, mark: reboots.Mark | None = None, *, again: bool = False) -> Walk:
    """The same, but each step that has to run is asked for, and its outcome is to be sent in: on a simulated server
    steps are acted out by somebody else, who may be cut off and go on `again` behind the last step that has ended."""
    spec, writer = attempt.spec, attempt.writer
    said = spool.said(attempt.folder) if mark or again else {}
    if again:
        pass
    elif mark is None:
        writer.event("started", attempt=spec["attempt"], pid=os.getpid(), host=os.uname().nodename)
    else:
        say_back(attempt, mark, said)
    kind = load_kind(spec["kind"])
    steps: list[Step] = kind.steps(read_params(kind.Params, spec["params"]))
    verdict: Verdict = ("succeeded", 0, None)
    for n, step in enumerate(steps, start=1):
        if mark and n <= mark.n:
            continue
        if again and ("step_end", n) in said:
            verdict = _as_it_ended(n, step, said["step_end", n]) if verdict[0] == "succeeded" else verdict
            continue
        if ("step", n) not in said:
            writer.event("step", n=n, of=len(steps), title=list(step.title), argv=_shown(step.argv))
        if verdict[0] != "succeeded" and not step.always:
            writer.event("step_end", n=n, state="skipped", exit=None, took_s=0.0)
            continue
        began = time.monotonic()
        if step.evidence or step.once:
            done = satisfied(attempt, step)
            if done:
                writer.event("step_end", n=n, state=done.state, exit=None, took_s=0.0)
                if done.state == "failed":
                    verdict = ("failed", None, _reason(n, step, done))
                continue
        outcome = yield n, step
        if outcome is None:
            return None
        if outcome.reason and outcome.state == "failed":
            writer.say(f"{outcome.reason.zh} {outcome.reason.en}")
        took_s = round(time.monotonic() - began, 3)
        writer.event("step_end", n=n, state=outcome.state, exit=outcome.exit, took_s=took_s)
        if verdict[0] == "succeeded" and (
            outcome.state == "cancelled" or (outcome.state == "failed" and not step.may_fail)
        ):
            verdict = (outcome.state, outcome.exit, _reason(n, step, outcome))
    return verdict


def satisfied(attempt: Attempt, step: Step) -> Outcome | None:
    """How a step ends that need not run: skipped where its evidence is there, failed where it is there no more; None
    for one that has to run."""
    wanted = step.evidence or step.reads
    assert wanted is not None
    if evidence.found(wanted, root_of(attempt.config)):
        attempt.writer.say(f"已满足 Satisfied: {wanted.file}{' · ' if wanted.value else ''}{wanted.value}")
        return Outcome("skipped")
    if step.evidence is None:
        return None
    gone = Text(
        f"计划里这一步已满足，但现在 {wanted.file} 里没有“{wanted.value}”。请重新查看计划，再提交作业。",
        f"The plan says that this is there, but {wanted.file} does not hold “{wanted.value}” now. "
        "Look at the plan again, then queue the job anew.",
    )
    attempt.writer.say(f"{gone.zh} {gone.en}")
    return Outcome("failed", None, gone)


def _as_it_ended(n: int, step: Step, state: str) -> Verdict:
    """What a step whose end was told already means for the whole: its reason stands in the log."""
    if state == "cancelled":
        return "cancelled", None, CANCELLED
    if state != "failed" or step.may_fail:
        return "succeeded", 0, None
    words = Text("原因见它在日志里的最后几行。", "Its last lines in the log say why.")
    return "failed", None, _reason(n, step, Outcome("failed", None, words))


def say_back(attempt: Attempt, mark: reboots.Mark, said: Mapping[tuple[str, int], str]) -> None:
    """Tell that the server has started anew, and end the step that waited for it; once."""
    if ("step_end", mark.n) in said:
        return
    took_s = max(0.0, round(time.time() - mark.at, 3))
    attempt.writer.events(
        spool.event("rebooted", n=mark.n, boot_id=reboots.boot_id(attempt.config), took_s=took_s),
        spool.event("step_end", n=mark.n, state="succeeded", exit=0, took_s=took_s),
    )


def run_step(
    attempt: Attempt, n: int, step: Step, is_cancelled: Callable[[], bool] | None = None, *, keep_mark: bool = False
) -> Outcome:
    """Run one step. From here on its command may have run, so a mark that waits for a restart goes before it."""
    cancelled = is_cancelled or attempt.is_cancelled
    if cancelled():
        return _cancelled(attempt)
    items, reason = attempt.folder / f"items-{n}", attempt.folder / f"reason-{n}"
    try:
        env = {**environment(attempt, step, items), "ASCEND_REASON": str(reason)}
        argv = as_root.command(attempt.config, step.argv, attempt.spec["attempt"]) if step.needs_root else step.argv
    except (devices.NoSuchNpu, as_root.NoRoot) as error:
        return Outcome("failed", None, error.text)
    note_step(attempt, n)
    if not keep_mark:
        reboots.clear(attempt.folder)
    running = StepRun(attempt.writer, items, cancelled, attempt.signals.wakeup)
    outcome = running.run(dataclasses.replace(step, argv=argv), env, attempt.folder)
    if outcome.state == "cancelled":
        return _cancelled(attempt, outcome.exit)
    return settled(attempt, step, outcome, told_reason(reason))


def settled(attempt: Attempt, step: Step, outcome: Outcome, told: Text | None) -> Outcome:
    """How a step ended: it must have brought about what it `reads`; `told` is why it failed in its program's words."""
    if outcome.state == "succeeded" and step.reads and not evidence.found(step.reads, root_of(attempt.config)):
        return Outcome("failed", outcome.exit, _not_brought_about(step.reads))
    return dataclasses.replace(outcome, reason=told) if told and outcome.state == "failed" else outcome


def _not_brought_about(wanted: Evidence) -> Text:
    return Text(
        f"命令没有报错，但 {wanted.file} 里没有“{wanted.value}”，因此按失败处理。请查看它最后的输出。",
        f"The command reported no error, but {wanted.file} does not hold “{wanted.value}”, so it counts as failed. "
        "See its last lines.",
    )


def told_reason(path: Path) -> Text | None:
    """Why the step failed in its program's own words, where it left some: JSON [zh, en]."""
    try:
        zh, en = json.loads(path.read_bytes()[:8192])
        return Text(str(zh)[:1000], str(en)[:1000])
    except (OSError, ValueError, TypeError):
        return None


def _cancelled(attempt: Attempt, code: int | None = None) -> Outcome:
    return Outcome("cancelled", code, CANCELLED) if attempt.is_unwanted() else Outcome("failed", code, TOLD_TO_END)


def restart(attempt: Attempt, n: int, step: Step) -> Outcome | None:
    """Have the server started anew; None when that is under way, or somebody's task, and the job waits for it."""
    if attempt.is_cancelled():
        return _cancelled(attempt)
    note_step(attempt, n)
    try:
        mark = reboots.leave(attempt.folder, attempt.config, n, step.reboot_s, by_hand=not step.argv)
        attempt.writer.events(reboots.waiting_event(mark))
        if not attempt.writer.sync():
            raise OSError
    except OSError:
        reboots.clear(attempt.folder)
        return Outcome("failed", None, NO_ROOM)
    if not step.argv:
        return None
    _let_it_be_told(attempt)
    # A server that goes down sends SIGTERM to everybody, us and the command included: neither is a cancel.
    limited = dataclasses.replace(step, timeout_s=min(step.timeout_s, step.reboot_s))
    outcome = run_step(attempt, n, limited, attempt.is_unwanted, keep_mark=True)
    cut_off = outcome.state == "failed" and outcome.exit in (128 + 15, 128 + 9) and not outcome.late
    if outcome.state == "succeeded" or cut_off:
        return None
    reboots.clear(attempt.folder)
    return outcome


def _let_it_be_told(attempt: Attempt) -> None:
    """A moment for the link to tell the console why this server will fall silent."""
    until = time.monotonic() + TELL_S
    while time.monotonic() < until and not attempt.is_unwanted():
        time.sleep(0.05)


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
