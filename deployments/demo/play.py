"""Jobs of simulated servers that are acted out: many of them in the demo's one thread, without a process each.

The agent's own runner walks through the steps (`runner.walk`) and judges each by what it printed, its exit code and
the files it was to bring about, as it does on a real server; only the programs are acted (`acts.py`). An attempt is
claimed, locked, told and ended as one with a runner. Where the demo's process ends in the middle, the next one begins
the step it was at anew.
"""

import json
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple, cast

from deployments import locks
from deployments.agent import reboots as agent_reboots
from deployments.agent import runner, spool
from deployments.agent.adopt import Adopter
from deployments.agent.attempt import Attempt, Signals
from deployments.agent.config import Config
from deployments.agent.execution import Outcome, judge
from deployments.agent.heard import Heard
from deployments.agent.lines import LineMaker
from deployments.agent.writer import SpoolWriter
from deployments.demo import acts, reboots
from deployments.demo.scene import Bare, Ended, Item, Scene, Told
from deployments.serving.faults import ALL as OF_ENGINES
from deployments.stacks.faults import FAULTS
from deployments.steps import Step, Text

LEAST_SPEED, MOST_SPEED = 0.1, 1000.0
LOOK_S = 0.25  # how often a pause is looked into: for a cancel, a deadline, a question that stands
INTERRUPTED = 128 + 2
SIMULATED = Text(
    "这台服务器是模拟的：下面的步骤由演示程序演出，没有安装任何真实的软件。",
    "This server is simulated: the steps below are acted out by the demo, and nothing real is installed.",
)
FAULT = Text("按要求模拟故障：{}。", "A fault is simulated as asked: {}.")


def speed() -> float:
    """How many times as fast as usual jobs are acted out; tests set ASCEND_DEMO_SPEED."""
    try:
        return min(MOST_SPEED, max(LEAST_SPEED, float(os.environ.get("ASCEND_DEMO_SPEED", "1"))))
    except ValueError:
        return 1.0


class NoSignals:
    """What a runner knows of the signals it was sent: here it is sent none."""

    terminated = False


class Cut(NamedTuple):
    """Why a step is ended before it has ended by itself; nothing of it where it is not."""

    cancelled: bool = False
    late: bool = False
    asked: str = ""


class Play:
    """One attempt. `due` is when (monotonic) its next `turn` has something to do."""

    def __init__(self, folder: Path, config: Config, scene: Scene, lock: int) -> None:
        self.folder, self.config, self.scene, self.lock = folder, config, scene, lock
        self.due, self.speed, self.is_over = 0.0, speed(), False
        mark = agent_reboots.read(folder)
        spool.mend_tail(folder / "lines")
        self.began_before = (folder / "lines").exists()
        spec: dict[str, Any] = json.loads((folder / "spec.json").read_text())
        writer = SpoolWriter(folder / "lines")
        self.attempt = Attempt(folder, config, spec, writer, cast(Signals, NoSignals()))
        self.fault = str(spec["params"].get("fault") or "")
        self.acts = self._run(mark)

    def turn(self, now: float) -> bool:
        """Do what is due; whether the play is over, and all of it told: a full disk must not hold up the others."""
        if not self.is_over:
            try:
                self.due = now + next(self.acts)
            except StopIteration:
                self.is_over = True
        self.attempt.writer.flush()
        return self.is_over and not self.attempt.writer.held

    def close(self) -> None:
        self.attempt.writer.close()
        os.close(self.lock)

    def _run(self, mark: agent_reboots.Mark | None) -> Generator[float, None, None]:
        """To the end of the attempt, or until it waits for the server to start anew. Yields seconds to wait."""
        writer = self.attempt.writer
        try:
            verdict = yield from self._steps(mark)
        except Exception:
            import traceback  # as the runner does

            for line in traceback.format_exc().splitlines():
                writer.say(line)
            verdict = ("failed", None, runner.BROKEN)
        if verdict is None:
            writer.sync()
            return
        state, code, reason = verdict
        writer.event("ended", state=state, exit=code, reason=list(reason) if reason else None)

    def _steps(self, mark: agent_reboots.Mark | None) -> Generator[float, None, runner.Verdict | None]:
        if not self.began_before:
            self._say_simulated()
        steps = runner.walk(self.attempt, mark, again=self.began_before and mark is None)
        outcome: Outcome | None = None
        try:
            n, step = next(steps)
            while True:
                outcome = yield from self._restart(n, step) if step.reboot else self._act(n, step)
                n, step = steps.send(outcome)
        except StopIteration as end:
            return cast("runner.Verdict | None", end.value)

    def _say_simulated(self) -> None:
        self.attempt.writer.say(f"{SIMULATED.zh} {SIMULATED.en}")
        if self.fault in FAULTS or self.fault in OF_ENGINES:
            title = FAULTS[self.fault].title if self.fault in FAULTS else OF_ENGINES[self.fault]
            self.attempt.writer.say(f"{FAULT.zh.format(title.zh)} {FAULT.en.format(title.en)}")

    # ---------- one step ----------

    def _act(self, n: int, step: Step) -> Generator[float, None, Outcome]:
        """One step acted out, and judged as if its program had run."""
        if self._is_unwanted() and not step.always:
            return Outcome("cancelled", None, runner.CANCELLED)
        runner.note_step(self.attempt, n)
        agent_reboots.clear(self.folder)
        heard, maker = Heard(step), LineMaker(self.attempt.writer, "o")
        until = time.monotonic() + step.timeout_s
        act, ended, cut = acts.of(step, self.scene, self.fault), None, Cut()
        while ended is None and cut == Cut():
            try:
                pause = self._hear(next(act), heard, maker)
            except StopIteration as end:
                ended = end.value
            else:
                cut = yield from self._pause(pause, until, heard, maker, always=step.always or step.to_its_end)
        maker.close()
        return self._judged(step, ended, heard, cut)

    def _pause(
        self, seconds: float, until: float, heard: Heard, maker: LineMaker, *, always: bool
    ) -> Generator[float, None, Cut]:
        """Wait so long, at the usual speed, or until the step is to be ended, past `until` for instance."""
        over, cut = time.monotonic() + seconds / self.speed, Cut()
        while (left := over - time.monotonic()) > 0 and cut == Cut():
            yield min(left, LOOK_S)
            maker.tick()
            if self._is_unwanted() and not always:
                cut = Cut(cancelled=True)
            elif time.monotonic() >= until and not always:
                cut = Cut(late=True)
            else:
                cut = Cut(asked=heard.question())
        return cut

    def _hear(self, said: str | float | Item | Told, heard: Heard, maker: LineMaker) -> float:
        """Pass on what an act says; for how long (at the usual speed) it then pauses."""
        if isinstance(said, Item):
            self.attempt.writer.event("item", **{name: value for name, value in said.items() if name != "e"})
            return 0.0
        if isinstance(said, Told):
            self.attempt.writer.event("told", told=said["told"], data=said["data"])
            return 0.0
        if isinstance(said, (float, int)):
            return float(said)
        data = said.encode() if isinstance(said, Bare) else f"{said}\n".encode()
        maker.feed(data)
        heard.feed(1, data)
        return 0.0

    def _judged(self, step: Step, ended: Ended | None, heard: Heard, cut: Cut) -> Outcome:
        writer = self.attempt.writer
        if cut.cancelled:
            writer.event("cancelling", rung="interrupt")
            return Outcome("cancelled", INTERRUPTED, runner.CANCELLED)
        if cut.late:
            writer.say("已过时限，发送 SIGINT。Past its deadline: sent SIGINT.")
        elif cut.asked:
            writer.say("它在等待回答，发送 SIGINT。It waits for an answer: sent SIGINT.")
        code = ended.code if ended else INTERRUPTED
        outcome = judge(step, code, heard, late=cut.late, asked=cut.asked, cancelled=False)
        return runner.settled(self.attempt, step, outcome, ended.reason if ended else None)

    def _is_unwanted(self) -> bool:
        return self.attempt.is_unwanted()

    # ---------- a restart ----------

    def _restart(self, n: int, step: Step) -> Generator[float, None, Outcome | None]:
        """The simulated server goes down, and the job with it, until it is back with another boot id."""
        if self._is_unwanted():
            return Outcome("cancelled", None, runner.CANCELLED)
        runner.note_step(self.attempt, n)
        try:
            mark = agent_reboots.leave(self.folder, self.config, n, step.reboot_s, by_hand=False)
        except OSError:
            agent_reboots.clear(self.folder)
            return Outcome("failed", None, runner.NO_ROOM)
        self.attempt.writer.events(agent_reboots.waiting_event(mark))
        self.attempt.writer.sync()
        yield runner.TELL_S  # a moment for the link to tell the console why this server will fall silent
        if self._is_unwanted():
            agent_reboots.clear(self.folder)
            return Outcome("cancelled", None, runner.CANCELLED)
        dead = self.fault == "no_return"
        down_s = reboots.DEAD_S if dead else max(reboots.LEAST_DOWN_S, reboots.DOWN_S / self.speed)
        words = "does not come back by itself" if dead else f"is back in {down_s:g} s"
        self.attempt.writer.line("o", f"simulated: the server goes down and {words}".encode())
        reboots.begin(self.config.state_dir, time.time(), down_s)
        return None


# ---------- attempts ----------


class Stage(Adopter):
    """Looks after a simulated server's attempts: begins a play where an agent's would start a runner."""

    def __init__(self, config: Config, scene: Callable[[], Scene]) -> None:
        super().__init__(config)
        self.make_scene = scene
        self.plays: dict[str, Play] = {}
        self.acted: dict[str, bool] = {}

    def _is_acted(self, folder: Path) -> bool:
        if folder.name not in self.acted:
            self.acted[folder.name] = runner.is_acted(folder)
        return self.acted[folder.name]

    def _look(self, folder: Path) -> str:
        """A play that was cut off with the demo's process goes on; no process of its own was left behind."""
        cut_off = folder.name not in self.plays and spool.has_begun(folder) and not spool.is_over(folder)
        if cut_off and self._is_acted(folder) and not agent_reboots.is_left(folder) and not spool.is_alive(folder):
            return "waits"
        return super()._look(folder)

    def _start(self, folder: Path) -> bool:
        if not self._is_acted(folder):
            return super()._start(folder)
        if folder.name in self.plays:
            return True
        lock = locks.take_lock(folder / "lock")
        if lock is None:
            return False
        try:
            self.plays[folder.name] = Play(folder, self.config, self.make_scene(), lock)
        except (OSError, ValueError, KeyError):
            os.close(lock)
            return False
        return True

    def turn(self, now: float) -> bool:
        """Go on with the plays that are due; whether one has come to its end, or to a restart."""
        over = [play for play in list(self.plays.values()) if play.due <= now and play.turn(now)]
        for play in over:
            play.close()
            del self.plays[play.folder.name]
        return bool(over)
