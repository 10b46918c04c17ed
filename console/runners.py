"""Job runners and engines of this machine, which outlive the console: who they are, and how they are ended. Plain."""

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from deployments.agent import processes, spool
from deployments.agent.engines import folder, watch

CANCEL_S = 15.0  # interrupt, terminate, kill take 5 s each


@dataclass(frozen=True)
class Runner:
    """A living runner; `server` is the name of the server that it works for."""

    attempt: str
    server: str
    pid: int
    folder: Path

    @property
    def job(self) -> str:
        """The job's number, which its attempt's id begins with: 42 of `a42-1-0f3c5a7e`."""
        return self.attempt[1:].partition("-")[0]


def alive(var: Path) -> list[Runner]:
    """Every runner under `var` that lives, those of the demo fleet included."""
    found = []
    for attempts in sorted([*var.glob("agent/attempts"), *var.glob("demo/*/attempts")]):
        for path in spool.folders(attempts):
            who = spool.runner_identity(path) if spool.is_alive(path) else None
            if who:
                found.append(Runner(path.name, _server_of(attempts.parent), who.pid, path))
    return found


def _server_of(state: Path) -> str:
    try:
        return str(json.loads((state / "config.json").read_text())["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return state.name


def words(runners: list[Runner]) -> list[str]:
    """One line for each."""
    return [f"  job {runner.job}  attempt {runner.attempt}  on {runner.server}  pid {runner.pid}" for runner in runners]


def end(runners: list[Runner]) -> list[Runner]:
    """Cancel each as the console would; one that does not end within CANCEL_S is killed. Returns those."""
    for runner in runners:
        (runner.folder / "cancel").touch()
    deadline = time.monotonic() + CANCEL_S
    left = runners
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = [runner for runner in left if spool.is_alive(runner.folder)]
    for runner in left:
        processes.signal_session(runner.pid, signal.SIGKILL, but=frozenset({os.getpid()}))
    return left


def engines(var: Path) -> list[folder.Folder]:
    """Every engine of the console's own server that runs, or is kept."""
    return folder.alive(var / "agent")


def engine_words(left: list[folder.Folder]) -> list[str]:
    """One line for each."""
    found = []
    for place in left:
        who, spec = place.engine, place.spec or {}
        found.append(f"  engine {place.name}  deployment {spec.get('deployment', '?')}  pid {who.pid if who else '-'}")
    return found


def end_engines(left: list[folder.Folder]) -> list[folder.Folder]:
    """End them until the next start, which starts them again; returns those that had to be killed."""
    return watch.end(left, for_good=False)


def farewell(left: list[Runner], running: list[folder.Folder] | None = None) -> list[str]:
    """What is said of those that outlive the console."""
    said = []
    if left:
        said.append(f"{len(left)} job runner(s) go on, and are adopted at the next start; 'make down ALL=1' ends them:")
        said += words(left)
    if running:
        said.append(f"{len(running)} engine(s) go on serving; 'make down ALL=1' ends them until the next start:")
        said += engine_words(running)
    return said
