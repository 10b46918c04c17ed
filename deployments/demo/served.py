"""Engines of deployments on a simulated server: `<state>/engines/e12.served`, as acted jobs have left them.

Nothing is served: what an engine tells of itself is reckoned from its load at that second, like every other reading.
"""

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from deployments.agent import spool
from deployments.agent.writer import SpoolWriter
from deployments.demo import physics, state
from deployments.demo.fleet import DemoServer, Engine

VERSION = "0.23.0"
PIDS, MOST_CHIPS, MOST = 500_000, 16, 64
ENDING = ".served"
STARTING, LOADING, READY, STOPPED = "starting", "loading", "ready", "stopped"


@dataclass(frozen=True)
class Served:
    """One engine. `state` is starting | loading | ready | failed | stopped; `piece` is the newest of its log; once it
    has `answered`, the job that started it leaves it alone."""

    replica: int
    deployment: str
    state: str = STARTING
    chips: tuple[int, ...] = ()
    memory_mb: int = 0
    command: str = ""
    started_at: float = 0.0
    ready_at: float | None = None
    answered: bool = False
    progress: dict[str, Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    piece: int = 0

    @property
    def runs(self) -> bool:
        return self.state in (STARTING, LOADING, READY)

    @property
    def pids(self) -> tuple[int, ...]:
        """None that a server of the fleet has."""
        return tuple(PIDS + self.replica % 10_000 * MOST_CHIPS + n for n in range(max(1, len(self.chips))))

    @property
    def engine(self) -> Engine:
        """As npu-smi shows it."""
        pattern = "chat" if self.state == READY else "loading"
        return Engine(
            self.deployment, "VLLMWorker_TP", self.chips, self.memory_mb, pattern, self.replica % 1000,
            "ascend-console", self.command, "demo", self.pids, self.started_at,
        )  # fmt: skip


def path_of(state_dir: Path, replica: int) -> Path:
    return state_dir / "engines" / f"e{replica}{ENDING}"


def read(state_dir: Path, replica: int) -> Served | None:
    """None where it was never there, or another version has written it."""
    return _read(path_of(state_dir, replica))


def _read(path: Path) -> Served | None:
    try:
        told = json.loads(path.read_bytes())
        made = Served(**{**told, "chips": tuple(told["chips"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    numbers = (made.replica, made.memory_mb, made.piece, *made.chips)
    return made if all(type(one) is int and one >= 0 for one in numbers) else None


def write(state_dir: Path, made: Served) -> Served:
    """Remember it; its processes come and go with it."""
    folder = state_dir / "engines"
    folder.mkdir(parents=True, exist_ok=True)
    processes = folder / f"{made.pids[0]}.json"
    if made.runs and made.chips:
        state.start(folder, made.engine)
    else:
        state.stop(processes)
    spool.write_whole(path_of(state_dir, made.replica), json.dumps(asdict(made)).encode())
    return made


def say(state_dir: Path, made: Served, *lines: str) -> None:
    """Lines of its log, shipped as those of a real engine."""
    writer = _writer(state_dir, made)
    for line in lines:
        writer.line("o", line.encode())
    writer.close()


def tell(state_dir: Path, made: Served, name: str, **fields: Any) -> None:
    """An event of its log."""
    writer = _writer(state_dir, made)
    writer.event(name, **fields)
    writer.close()


def _writer(state_dir: Path, made: Served) -> SpoolWriter:
    folder = state_dir / "logs" / f"e{made.replica}-{made.piece}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return SpoolWriter(folder / "lines")


def begin(state_dir: Path, made: Served) -> Served:
    """A new piece of its log, with another start."""
    before = read(state_dir, made.replica)
    made = write(state_dir, replace(made, piece=(before.piece if before else 0) + 1))
    tell(state_dir, made, "started", replica=made.replica, pid=made.pids[0], argv=made.command.split())
    return made


def end(state_dir: Path, made: Served, *, failed: list[str] | None = None) -> Served:
    """It runs no more; the piece has ended."""
    made = write(state_dir, replace(made, state="failed" if failed else STOPPED, progress=None, ready_at=None))
    tell(state_dir, made, "engine", state=made.state, progress=None, reason=failed)
    outcome = "failed" if failed else "succeeded"
    tell(state_dir, made, "ended", state=outcome, exit=1 if failed else 0, reason=failed, more=False)
    return made


class Serving:
    """Those of one server, for its samples. Looks at the folder again only when it changed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._seen = folder, -1
        self._all: list[Served] = []

    def now(self, server: DemoServer, t: float) -> list[dict[str, Any]]:
        """As keepers would tell: the shape of agent/engines/now.py."""
        try:
            changed = os.stat(self.folder).st_mtime_ns  # noqa: PTH116 - asked for every server every second
        except OSError:
            changed = 0
        if changed != self._seen:
            self._seen = changed
            paths = sorted(self.folder.glob(f"*{ENDING}"))[:MOST] if changed else []
            self._all = [made for path in paths if (made := _read(path)) and made.runs]
        return [told(made, t) for made in self._all]


def told(made: Served, t: float) -> dict[str, Any]:
    return {
        "replica": made.replica, "state": made.state, "pid": made.pids[0], "started_at": made.started_at,
        "ready_at": made.ready_at, "restarts": 0, "progress": made.progress, "reason": None,
        "metrics": metrics(made, t), "facts": made.facts, "at": round(t, 3), "kept": True,
    }  # fmt: skip


def metrics(made: Served, t: float) -> dict[str, Any]:
    """What its /metrics would say; nothing is known before it is ready."""
    names = ("running", "waiting", "kv_pct", "prompt_tokens_s", "generation_tokens_s", "ttft_ms", "tpot_ms",
             "requests_total", "errors_total")  # fmt: skip
    if made.state != READY or made.ready_at is None:
        return dict.fromkeys(names)
    load = physics.load_and_heat(made.engine, t)[0]
    return {
        "running": round(load * 24),
        "waiting": round(max(0.0, load - 0.8) * 30),
        "kv_pct": round(load * 62, 1),
        "prompt_tokens_s": round(load * 2600, 1),
        "generation_tokens_s": round(load * 540 * max(1, len(made.chips)), 1),
        "ttft_ms": round(95 + load * 380, 1) if load else None,
        "tpot_ms": round(21 + load * 26, 1) if load else None,
        "requests_total": int(max(0.0, t - made.ready_at) * 0.7),
        "errors_total": 0,
    }
