"""Step of the job `agent_upgrade`: start the agent with other code, watch it, and go back where it does not come up.

    python -m deployments.agent.upgrade DIGEST

This process belongs to a runner, which has a session of its own: it lives on while the agent is ended and started. It
runs the code from before, which worked. Should it die, the choice has no watcher: see chosen.py.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from deployments import locks
from deployments.agent import bundles, chosen, install, processes
from deployments.agent.config import Config, ConfigError, load
from deployments.agent.pages import Stopped, give_up, place_of, say
from deployments.steps import Text

END_S = 45.0  # for the agent that is ended: three parts, ten seconds each at worst
UP_S = 60.0  # for the one that starts
BEATS = 2
STARTS = 3  # that end at once are enough to know
TURN_S = 0.2
LOGS = ("keep", "worker", "link", "sampler")


class Cancelled(Exception):
    pass


class Switch:
    """One change of code. `run` returns the exit code of the step."""

    def __init__(self, config: Config, digest: str) -> None:
        self.config = config
        self.state = config.state_dir
        self.place = place_of(config)
        self.name = digest[:16]
        self.base = bundles.base_name(self.place)
        self.before = bundles.present(config, self.place)
        self.began = time.time()

    def run(self) -> int:
        if self.name == self.before:
            say("代理已是这个版本。", "The agent is of this version already.")
            return 0
        if self.name != self.base and not chosen.is_whole(chosen.home(self.state) / self.name):
            raise Stopped("新代理不在本机，请重试作业。", "The new agent is not here. Try the job again.")
        old = self._running()
        me = processes.identity(os.getpid())
        assert me is not None
        try:
            self._choose(self.name, me)
            say(f"由 {self.before} 换为 {self.name}，重启代理 …", f"From {self.before} to {self.name}: starting anew …")
            self._end(old)
            problem = self._await(self.name)
        except Cancelled:
            problem = Text("作业已取消。", "The job was cancelled.")
        if problem is None:
            self._choose(self.name, None)
            say("新代理已在线。", "The new agent is up.")
            self._prune()
            return 0
        return self._go_back(problem)

    def _choose(self, name: str, watcher: processes.Identity | None) -> None:
        before = "" if self.before == self.base else self.before
        code = "" if name == self.base else name
        chosen.write(self.state, chosen.Choice(self.place.joined, code, before if code != before else "", watcher))

    def _running(self) -> processes.Identity:
        """The agent's first process. Raises Stopped where there is none, or nobody who would start it again."""
        lock = self.state / "agent.lock"
        words = lock.read_text()[:20].strip() if locks.is_locked(lock) else ""
        found = processes.identity(int(words)) if words.isdecimal() else None
        parent = processes.stat(found.pid) if found else None
        keeper = 1 if self.place.systemd else install.keeper(self.place)
        if found is None or parent is None or parent.ppid != keeper:
            raise Stopped(
                "没有守护进程会再次启动代理，未作改动。请在本机运行 ascend-console restart，再重试。",
                "Nobody would start the agent again, so nothing was changed. Run “ascend-console restart” on the "
                "server, then try again.",
            )
        return found

    def _end(self, who: processes.Identity | None) -> None:
        """End an agent that runs; its keeper starts the next one."""
        if who is None or not processes.lives(who):
            return
        chosen.forget_sound(self.state)
        os.kill(who.pid, signal.SIGTERM)
        if not _until(lambda: not processes.lives(who), END_S):
            os.kill(who.pid, signal.SIGKILL)  # its parts die with it
            _until(lambda: not processes.lives(who), END_S)

    def _await(self, name: str) -> Text | None:
        """None once the agent of that code is up: beats and samples went out twice and more, and its worker lives."""
        wanted, starts = name, set()
        until = time.monotonic() + UP_S
        sound = None
        while time.monotonic() < until:
            found = chosen.sound(self.state)
            sound = found if found and found.code == wanted else None
            if sound and sound.beats >= BEATS and sound.samples and sound.worker:
                return None
            if who := chosen.started(self.state):
                starts.add(who)
            ended = [one for one in starts if not processes.lives(one)]
            if len(ended) > STARTS:  # the one before is among them
                return Text(
                    f"它启动后随即退出（{STARTS} 次）。", f"It ended right after its start, {STARTS} times in a row."
                )
            time.sleep(TURN_S)
        return _why(sound)

    def _go_back(self, problem: Text) -> int:
        self._tell_logs()
        self._choose(self.before, None)
        self._end(chosen.started(self.state))
        back = self._await(self.before) is None
        text = Text(
            f"已回退到 {self.before}：{problem.zh}" + ("" if back else " 原代理尚未恢复，请查看该服务器。"),
            f"Rolled back to {self.before}: {problem.en}"
            + ("" if back else " The agent from before has not come up yet; look at the server."),
        )
        give_up(text)
        return 1

    def _tell_logs(self) -> None:
        """The last lines of what the new agent left in its logs."""
        for name in LOGS:
            path = self.place.prefix / "log" / f"{name}.log"
            try:
                if path.stat().st_mtime < self.began:
                    continue
                with path.open("rb") as file:
                    file.seek(max(0, path.stat().st_size - 4096))
                    lines = file.read().decode(errors="replace").splitlines()[-12:]
            except OSError:
                continue
            print(*(f"{name}.log: {line[:500]}" for line in lines), sep="\n", flush=True)

    def _prune(self) -> None:
        keep = {self.name, self.before}
        for name in bundles.prune(chosen.home(self.state), self.config.attempts, keep):
            say(f"已移除旧代码 {name}。", f"Removed old code {name}.")


def _why(sound: chosen.Sound | None) -> Text:
    """What a minute of waiting has shown."""
    if sound is None:
        return Text(
            f"它在 {UP_S:.0f} 秒内没有向控制台的 Redis 报到。",
            f"It did not report to the console's Redis within {UP_S:.0f} s.",
        )
    if not sound.worker:
        return Text("它报到了，但其作业执行进程没有运行。", "It reported, but its worker does not run.")
    if not sound.samples:
        return Text("它报到了，但没有送出任何采样。", "It reported, but no sample of it went out.")
    return Text("它只报到了一次。", "It reported once and no more.")


def _until(what: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def _cancel(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):  # the way back is not cut short by the next rung
        signal.signal(number, signal.SIG_IGN)
    raise Cancelled


def main(argv: list[str] | None = None) -> int:
    (digest,) = sys.argv[1:] if argv is None else argv
    signal.signal(signal.SIGINT, _cancel)
    signal.signal(signal.SIGTERM, _cancel)
    try:
        return Switch(load(Path(os.environ["ASCEND_CONFIG"])), digest).run()
    except (Stopped, ConfigError) as stopped:
        give_up(stopped.text)
    except Cancelled:  # before anything was changed
        say("已取消，未作改动。", "Cancelled; nothing was changed.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
