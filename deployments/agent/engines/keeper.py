"""Keeps one engine: starts it, hears what it prints, asks how it is, starts it anew when it dies, ends it on request.

    python -m deployments.agent.engines.keeper <folder> --config <config.json> [--once]

A keeper that is killed takes nothing with it: the engine goes on, and the next keeper takes it up. SIGTERM ends the
engine as well, but not the wish that it runs. With `--once` (under systemd) the keeper ends when the engine ends.
"""

import argparse
import contextlib
import os
import queue
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from deployments import locks
from deployments.agent import processes
from deployments.agent.config import Config, load
from deployments.agent.engines import engine, folder, probe, words
from deployments.agent.engines.engine import CannotStart, Members
from deployments.agent.engines.folder import Folder
from deployments.agent.engines.head import Head
from deployments.agent.engines.health import Asker, Told
from deployments.agent.engines.hearing import Hearing
from deployments.agent.engines.scrape import NOTHING
from deployments.steps import Text

LOOK_S = 0.25
MEMBERS_S = 10.0
FAILURES = 3  # of /health in a row: degraded
HANGS_S = 120.0  # degraded for so long, it is ended; the spec may say otherwise (`hang_s`)
DEAD_S = 15.0  # and where it says itself that its engine is dead (503)
STOP_S = 30.0
NO_ROOM_S = 5.0
FIRST_PAUSE_S = 2.0
MAX_PAUSE_S = 60.0
WINDOW_S = 600.0
MOST_DEATHS = 5
READY_S = 1800.0
ONCE_PAUSE_S = 10.0  # systemd's, as `serving/unit.py` has it
GAVE_UP = 1  # exit code


class Keeper:
    """One engine's. `run` returns the exit code."""

    def __init__(self, place: Folder, config: Config, spec: dict[str, Any], *, once: bool = False) -> None:
        self.place, self.config, self.spec, self.once = place, config, spec, once
        self.hearing = Hearing(place, str(spec.get("api_key") or ""))
        self.now = self.hearing.now
        self.process: subprocess.Popen[bytes] | None = None  # None for an engine that an earlier keeper started
        self.members: Members | None = None  # None while nothing runs
        self.asker: Asker | None = None
        self.head = Head(spec)
        self.answers: queue.SimpleQueue[tuple[Asker, Told]] = queue.SimpleQueue()
        self.began = 0.0
        self.failures = 0
        self.bad_since: float | None = None
        self.trouble: Text | None = None
        self.asked_at = place.asked_at
        self.start_at = self.members_at = self.look_at = 0.0
        self.terminated = False
        self.verdict: int | None = None  # the exit code, when the keeping is over

    def run(self) -> int:
        self._heed_signals()
        self._take_up()
        while self.verdict is None:
            self._judge() if self.members is not None else self._start_or_end()
            if self.verdict is None:
                self.hearing.turn()
        self.hearing.close()
        return self.verdict

    def _heed_signals(self) -> None:
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # wakes us
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked_to_end)

    def _asked_to_end(self, _number: int, _frame: FrameType | None) -> None:
        self.terminated = True

    def is_wanted(self) -> bool:
        return not self.terminated and self.place.wish == "run"

    # -- taking up what an earlier keeper left

    def _take_up(self) -> None:
        who = self.place.engine
        self.now.put(restarts=len(self.place.deaths))
        if who is None or who.boot_id != processes.boot_id():
            if self.hearing.pieces.go_on():
                self.hearing.end_piece("failed", None, words.RESTARTED if who else None, more=self.is_wanted())
            self.hearing.pieces.mend()
            return
        self.members = Members(who, self.place.path)
        goes_on = self.hearing.pieces.go_on()
        if self.hearing.capture.open():
            self.hearing.follow()
        if processes.lives(who):
            self._adopt(who, goes_on)
        else:
            self._died(None)

    def _adopt(self, who: processes.Identity, goes_on: bool) -> None:
        """Its log goes on where it was; where that piece was ended already, the next begins."""
        told = folder.read_json(self.place.path / "now.json") or {}
        told = told if told.get("pid") == who.pid else {}
        started, ready_at = told.get("started_at"), told.get("ready_at")
        if not goes_on:
            self.hearing.pieces.take_over()
        self.hearing.pieces.mend()
        began = float(started) if isinstance(started, (int, float)) else time.time()
        self.began = time.monotonic() - max(0.0, time.time() - began)
        facts = self.hearing.progress.facts
        if isinstance(told.get("facts"), dict):
            facts |= {name: value for name, value in told["facts"].items() if name in facts}
        self.now.put(pid=who.pid, started_at=round(began, 3), ready_at=ready_at)
        self.hearing.put("ready", None) if ready_at else self._loads()
        self._ask(completed=bool(ready_at))

    # -- starting

    def _loads(self) -> None:
        """With why it is not for the first time: that takes minutes, and somebody may be looking."""
        why = self.place.died_of
        self.hearing.put("loading", words.anew(why) if why else None)

    def _start_or_end(self) -> None:
        """Start it when that is due; the end where it is not wanted."""
        if not self.is_wanted():
            self._stopped()
            return
        if self.place.asked_at != self.asked_at:  # asked for anew: with what is in the spec now
            self.asked_at, self.spec, self.start_at = self.place.asked_at, self.place.spec or self.spec, 0.0
            self.hearing.pieces.key = str(self.spec.get("api_key") or "")
            self.now.put(restarts=0)
        if time.monotonic() < self.start_at:
            return
        try:
            self._start()
        except CannotStart as error:
            if self.is_wanted():
                self.hearing.catch_up()
                self._count_death(None, error.text)
        except OSError as error:
            self.start_at = time.monotonic() + NO_ROOM_S
            self.hearing.put("loading", words.no_room(error))

    def _start(self) -> None:
        """Raises CannotStart; OSError where there is no room to note who it is."""
        self.place.note_engine(None)
        self.hearing.forget()
        self.hearing.begin_piece()
        self._loads()
        self.now.tick(at_once=True)
        visible = engine.visible(self.config, self.spec)
        env = engine.environment(self.config, self.spec, visible, self.place.name)
        engine.check_devices(self.spec, env, visible, self.place.path, self.is_wanted)
        engine.end_container(self.spec, env)
        if not self.is_wanted():
            raise CannotStart(words.STOPPED)
        output = self.hearing.capture.make()
        try:
            self.process = engine.start(engine.command(self.spec, self.spec["argv"]), env, self.place.path, output)
        finally:
            os.close(output)
        who = processes.identity(self.process.pid)
        assert who is not None  # our child, which nobody has waited for
        self.place.note_engine(who)
        self.members = Members(who, self.place.path)
        self.hearing.follow()
        self.began, self.failures, self.bad_since, self.trouble = time.monotonic(), 0, None, None
        shown = words.masked(self.spec)
        self.hearing.pieces.event("started", replica=self.now.fields["replica"], pid=who.pid, argv=shown)
        self.now.put(pid=who.pid, started_at=round(time.time(), 3), ready_at=None)
        self._ask()

    def _ask(self, *, completed: bool = False) -> None:
        self.head = Head(self.spec)
        at = probe.address_of(self.spec)
        if at.port:
            self.asker = Asker(at, str(self.spec.get("served_model_name") or ""), self._answered, completed=completed)
            self.asker.start()

    def _answered(self, asker: Asker, told: Told) -> None:
        """Called by the asking thread."""
        self.answers.put((asker, told))
        self.hearing.wake()

    # -- judging

    def _judge(self) -> None:
        while not self.answers.empty():
            asker, told = self.answers.get()
            if asker is self.asker:
                self._hear_of(told)
        now = time.monotonic()
        if now >= self.look_at:
            self.look_at = now + LOOK_S
            if not self.is_wanted():
                self._stop()
                return
        if not self._lives():
            self._died(self.process.returncode if self.process else None)
            return
        if now >= self.members_at and self.members is not None:
            self.members_at = now + MEMBERS_S
            self.members.look()
        self._judge_time(now)

    def _lives(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None
        return self.members is not None and processes.lives(self.members.leader)

    def _hear_of(self, told: Told) -> None:
        """What /health and the completion said becomes the state."""
        if told.metrics is not None:
            self.now.put(metrics=told.metrics)
        if told.status == probe.OK and told.completed:
            self.failures, self.bad_since, self.trouble = 0, None, None
            if self.hearing.state != "ready":
                self.now.put(ready_at=self.now.fields["ready_at"] or round(time.time(), 3))
                self.hearing.catch_up()  # its milestones come before its being ready
                self.hearing.put("ready", None)
        elif self.hearing.state == "loading":
            self.trouble = told.trouble
        else:
            self._is_unwell(told.status)

    def _is_unwell(self, status: int | None) -> None:
        self.failures += 1
        self.bad_since = self.bad_since or time.monotonic()
        if self.failures >= FAILURES:
            self.trouble = words.unwell(status)
            self.now.put(metrics=dict(NOTHING))
            self.hearing.put("degraded", self.trouble)

    def _judge_time(self, now: float) -> None:
        """End what does not become ready, or well again, in time."""
        state, ready_s = self.hearing.state, float(self.spec.get("ready_s") or READY_S)
        if self.asker is None:  # one of several servers of a replica: only the first answers requests
            if state == "loading":
                self.hearing.put("ready", None)
            elif self.head.is_gone():
                self._end(words.HEAD_GONE)
        elif state == "loading" and now - self.began > ready_s:
            self._end(words.not_ready(ready_s, self.trouble))
        elif state == "degraded" and self.bad_since is not None:
            limit = float(self.spec.get("hang_s") or HANGS_S)
            if self.trouble == words.unwell(503):
                limit = min(limit, DEAD_S)
            if now - self.bad_since > limit:
                self._end(words.hung(limit, self.trouble))

    # -- ending

    def _end(self, reason: Text) -> None:
        """End an engine that does not do its work; it is started anew, unless that was too often."""
        assert self.members is not None
        self.members.kill()
        self._died(None, reason)

    def _died(self, code: int | None, reason: Text | None = None) -> None:
        """Its leader is gone: nothing of it stays, and it is started anew in a while, or never."""
        self._clear()
        self._count_death(code, reason or words.ended(code, self.hearing.last))

    def _clear(self) -> None:
        """Nothing of the engine stays, and everything that it has printed is in its piece."""
        if self.asker is not None:
            self.asker.stop()
            self.asker = None
        assert self.members is not None
        self.members.kill()
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
        self.hearing.let_go()
        self.members = self.process = None
        self.now.put(pid=None, metrics=dict(NOTHING))
        with contextlib.suppress(OSError):
            self.place.note_engine(None)

    def _count_death(self, code: int | None, reason: Text) -> None:
        """One more. Too many within ten minutes end the keeping."""
        at = time.time()
        deaths = [one for one in [*self.place.deaths, at] if at - WINDOW_S <= one <= at]
        with contextlib.suppress(OSError):
            self.place.note_deaths(deaths, reason)
        most = int(self.spec.get("max_restarts", MOST_DEATHS))
        if len(deaths) > (most - 1 if self.once else most):  # systemd gives up at that number itself
            self._give_up(code, words.loop(len(deaths), reason))
            return
        pause = ONCE_PAUSE_S if self.once else min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** (len(deaths) - 1))
        self.start_at = time.monotonic() + pause
        self.now.put(restarts=int(self.now.fields["restarts"]) + 1)
        self.hearing.put("loading", words.again(pause, reason))
        self.hearing.end_piece("failed", code, reason, more=True)
        if self.once:
            self.verdict = GAVE_UP

    def _give_up(self, code: int | None, reason: Text) -> None:
        self.hearing.put("failed", reason)
        with contextlib.suppress(OSError):
            self.place.fail(reason)
        self.hearing.end_piece("failed", code, reason, more=False)
        self.verdict = GAVE_UP

    def _stop(self) -> None:
        """Gently, then the whole group."""
        assert self.members is not None
        self.members.look(deeply=True)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.members.leader.pid, signal.SIGTERM)
        until = time.monotonic() + float(self.spec.get("stop_s") or STOP_S)
        while self._lives() and time.monotonic() < until:
            self.hearing.turn(0.05)
        self._clear()
        engine.end_container(self.spec, os.environ)

    def _stopped(self) -> None:
        """It is not wanted, and nothing of it is there."""
        self.hearing.put("stopped", None)
        self.hearing.end_piece("succeeded", 0, None, more=False)
        self.verdict = 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="deployments.agent.engines.keeper")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args(argv)
    config, path = load(options.config), options.folder.absolute()
    if not folder.NAME.fullmatch(path.name):
        parser.error(f"{path.name} is no engine's folder")
    if os.getsid(0) != os.getpid():
        with contextlib.suppress(PermissionError):
            os.setsid()
    place, lock = Folder(path, config.logs), locks.take_lock(path / "lock")
    if lock is None:
        return 0  # it is kept
    with contextlib.suppress(OSError):
        os.pwrite(lock, f"{os.getpid()}\n".encode().ljust(20), 0)
    spec = place.spec
    if spec is None or not isinstance(spec.get("argv"), list):
        print(f"{path}: no spec.json that can be read", file=sys.stderr)
        return 2
    return Keeper(place, config, spec, once=options.once).run()


if __name__ == "__main__":
    sys.exit(main())
