"""The agent's own sampler on a simulated server: it asks simulated tools, and owners and host are simulated too."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deployments.agent import facts as agent_facts
from deployments.agent.config import Config
from deployments.agent.facts_host import FactsHost
from deployments.agent.owners import Owners
from deployments.agent.sampler import Sampler
from deployments.agent.tools import Output, Run
from deployments.demo import contents, physics, reboots, root, systems, tools
from deployments.demo.fleet import DemoServer, Engine
from deployments.demo.served import Serving
from deployments.demo.state import Engines


class DemoOwners(Owners):
    """Whose a process is, by the engines that run."""

    def __init__(self, config: Config, engines: Engines) -> None:
        super().__init__(config)
        self.engines = engines
        self.known: tuple[Engine, ...] | None = None
        self.by_pid: dict[int, Engine] = {}
        self.holders: dict[str, str] = {}

    def refresh(self) -> None:
        running = self.engines.running()
        if running is self.known:
            return
        self.known = running
        self.by_pid = {pid: engine for engine in running for pid in engine.pids}
        self.holders = {str(pid): engine.holder for pid, engine in self.by_pid.items() if engine.holder}

    def of(self, pid: int) -> dict[str, Any]:
        engine = self.by_pid.get(pid)
        if engine is None:
            return {"user": None, "command": None, "attempt": None}
        return {"user": engine.user, "command": engine.command or None, "attempt": engine.attempt}


class DemoSampler(Sampler):
    """`jobs` tells how many runners are at work on the server; a sample also says which model each process serves."""

    def __init__(self, config: Config, server: DemoServer, engines: Engines, jobs: Callable[[], int]) -> None:
        super().__init__(config, run=self.answer, host=self.figures)
        self.server, self.engines, self.jobs = server, engines, jobs
        self.served = Serving(config.state_dir / "engines")
        self.owners: DemoOwners = DemoOwners(config, engines)
        self.env = {}  # nothing is started

    def answer(self, argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> Output:
        code, text = tools.answer(self.server, list(argv), time.time(), self.engines.running())
        return Output(code, text)

    def figures(self) -> dict[str, float | None]:
        made = physics.host(self.server, time.time(), self.engines.running(), self.jobs())
        up = reboots.uptime_s(self.config.state_dir)
        return made if up is None else made | {"uptime_s": up}

    def _engines(self) -> dict[str, Any]:
        return {"engines": self.served.now(self.server, time.time())}

    def sample(self) -> dict[str, Any]:
        made = super().sample()
        return made | {"holders": self.owners.holders} if made["processes"] else made

    def collect(self) -> dict[str, Any]:
        return collect(self.server, self.config, self.answer)


def collect(server: DemoServer, config: Config, run: Run) -> dict[str, Any]:
    """The facts that the agent would collect on the simulated server."""
    found = agent_facts.gather(MemoryHost(server, config.root, run), config) | of_its_own(server)
    return found | contents.stacks(server) | reboots.facts(config.state_dir)


class MemoryHost(FactsHost):
    """The files of a simulated server as they would be written: a thousand roots are not written for its facts."""

    def __init__(self, server: DemoServer, folder: Path, run: Run) -> None:
        super().__init__(folder, {}, run)
        self.texts, self.folders = {}, {}
        links = {}
        for name, text in root.files(server).items():
            if text.startswith(root.LINK):
                links[name] = f"{name.rpartition('/')[0]}/{text.removeprefix(root.LINK)}"
            self._add(name.rstrip("/"), text)
        for name, target in links.items():
            for path in [path for path in self.texts if path.startswith(f"{target}/")]:
                self._add(name + path.removeprefix(target), self.texts[path])

    texts: dict[str, str]
    folders: dict[str, set[str]]

    def _add(self, name: str, text: str) -> None:
        self.texts[name] = text
        while name:
            name, _slash, last = name.rpartition("/")
            self.folders.setdefault(name, set()).add(last)

    def read(self, name: str) -> str | None:
        return self.texts.get(name.strip("/"))

    def exists(self, name: str) -> bool:
        return name.strip("/") in self.texts or name.strip("/") in self.folders

    def names(self, folder: str) -> list[str]:
        return sorted(self.folders.get(folder.strip("/"), ()))


def of_its_own(server: DemoServer) -> dict[str, Any]:
    """Facts that an agent reads of its own process: here those of the simulated system."""
    system = systems.of(server)
    return {"python": system.python, "glibc": system.glibc, "boot_id": f"demo-{server.name}", "root": "helper"}
