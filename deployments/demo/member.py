"""One simulated server in the demo's process: its samples, its link, and a worker whenever it has a job."""

import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from deployments.agent import ROOT, devices, processes, spool
from deployments.agent.config import Config
from deployments.agent.link import Link
from deployments.demo import contents, fleet, physics, reboots, root
from deployments.demo.play import Stage
from deployments.demo.scene import Scene
from deployments.demo.state import Engines
from deployments.demo.telemetry import DemoSampler

log = logging.getLogger("demo")

FACTS_S = 600.0
FACTS_A_SECOND = 40  # at the start, when those of the whole fleet are due
LOOK_S = 2.0  # how often attempts are looked after where there are some


class Member:
    """`server` is made from the config's name. Raises LookupError for a name that is none of the demo's."""

    def __init__(self, config: Config, connection: Any, tools: Path) -> None:
        self.made = fleet.by_name(config.name)
        self.server = contents.now(self.made, config.state_dir)
        self.root = config.state_dir / "root"
        env = root.environment(self.server, self.root, tools)
        self.config = dataclasses.replace(
            config, env={**config.env, **env}, path=config.state_dir / "config.json", simulated=True
        )
        self.link = Link(self.config, connection, worker_alive=lambda: True)
        self.engines = Engines(self.made, config.state_dir / "engines")
        self.adopter = Stage(self.config, self._scene)
        self.sampler = DemoSampler(self.config, self.server, self.engines, lambda: self.jobs)
        self.facts_at = time.time() + self.server.index / FACTS_A_SECOND
        self.look_at = 0.0
        self.jobs = 0
        self.gone = False
        self.down = False
        self.next_at = 0.0
        self.scene: Scene | None = None
        self.last: dict[str, Any] | None = None
        self.worker: subprocess.Popen[bytes] | None = None

    def is_silent(self, t: float) -> bool:
        if self.gone or physics.is_silent(self.server, t):
            return True
        # Only a job has it start anew, and jobs are looked for only where some are.
        return self.is_busy and self.is_down(t)

    def is_down(self, t: float) -> bool:
        """Whether it starts anew; back again, it has what was installed before, and tells its facts."""
        seen = reboots.look(self.config.state_dir, t)
        self.down = seen == "down"
        if seen == "back":
            now = contents.now(self.made, self.config.state_dir)
            if (self.root / root.STAMP).exists():
                root.change(self.root, root.files(self.server), root.files(now))
            self._changed(now)
            self.facts_at, self.scene = t, None
        return self.down

    def _scene(self) -> Scene:
        """One for all plays, which would otherwise not see each other's changes."""
        if self.scene is None:
            self.scene = Scene(self.made, self.config.state_dir, self.engines.running, self._changed)
        return self.scene

    def _changed(self, server: fleet.DemoServer) -> None:
        """A job has installed something, or taken it away."""
        self.server = self.sampler.server = server

    def look_gone(self, t: float) -> None:
        """Whether the console has decommissioned it; back again, it tells its facts anew."""
        before, self.gone = self.gone, (self.config.state_dir / fleet.GONE).exists()
        if before and not self.gone:
            self.facts_at, self.sampler.told = t, ""

    def messages(self, t: float) -> list[bytes]:
        """What the sampler has to say at this second: a sample, and the facts when they are due."""
        self.last = self.sampler.sample()
        made = [self.last]
        if t >= self.facts_at:
            self.facts_at = t + FACTS_S
            made.append(self.sampler.facts_news())
        return [json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() for message in made]

    @property
    def is_busy(self) -> bool:
        """Whether there are attempts whose lines are not all with the console, or a worker at work."""
        return bool(self.link.shipper.tracks) or self.worker is not None or bool(self.adopter.plays)

    def look(self, now: float) -> None:
        """Look after attempts as the agent's worker does, and after our own worker."""
        if self.worker is not None and self.worker.poll() is not None:
            if self.worker.returncode:
                log.warning("%s: its worker ended with code %s", self.config.name, self.worker.returncode)
            self.worker, self.look_at = None, 0.0
        if self.down:
            return
        if self.adopter.turn(now):
            self.facts_at, self.look_at = time.time(), 0.0
        if now >= self.look_at:
            self.look_at = now + LOOK_S
            self.jobs = len(self.adopter.tick())

    def start_worker(self) -> None:
        """Start a worker that takes what stands in this server's queue and ends."""
        self.prepare()
        devices.remember(self.config.state_dir, self.last or self.sampler.sample())
        self.worker = subprocess.Popen(
            [sys.executable, "-m", "deployments.agent.worker", "--burst", "--config", str(self.config.path)],
            stdin=subprocess.DEVNULL,
            cwd=self.config.state_dir,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            preexec_fn=processes.DieWithParent(signal.SIGTERM),  # sound, since this process has one thread
        )

    def prepare(self) -> None:
        """The server's folder, files and config, as far as they are missing."""
        self.config.attempts.mkdir(parents=True, exist_ok=True, mode=0o700)
        root.ensure(self.server, self.root)
        fields = dataclasses.asdict(self.config)
        del fields["path"]
        text = json.dumps(fields, default=str)
        path = self.config.path
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            spool.write_whole(path, text.encode())
            path.chmod(0o600)
