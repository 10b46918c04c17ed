"""The agent's own sampler on a simulated server: it asks simulated tools, and owners and host are simulated too."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deployments.agent import VERSION
from deployments.agent.config import Config
from deployments.agent.owners import Owners
from deployments.agent.sampler import Sampler
from deployments.agent.tools import Output
from deployments.demo import answers, physics, reboots, systems, tools
from deployments.demo.fleet import DemoServer, Engine
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
        self.owners: DemoOwners = DemoOwners(config, engines)
        self.env = {}  # nothing is started

    def answer(self, argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> Output:
        code, text = tools.answer(self.server, list(argv), time.time(), self.engines.running())
        return Output(code, text)

    def figures(self) -> dict[str, float | None]:
        made = physics.host(self.server, time.time(), self.engines.running(), self.jobs())
        up = reboots.uptime_s(self.config.state_dir)
        return made if up is None else made | {"uptime_s": up}

    def sample(self) -> dict[str, Any]:
        made = super().sample()
        return made | {"holders": self.owners.holders} if made["processes"] else made

    def facts(self) -> dict[str, Any]:
        return facts(self.server, time.time())


def facts(server: DemoServer, t: float) -> dict[str, Any]:
    """The facts message, without the files of the server: a thousand roots are not written for it."""
    system, cpus = systems.of(server), systems.cpus(server)
    readable = "unreadable" not in server.quirks
    return {
        "type": "facts",
        "t": round(t, 3),
        "facts": {
            "hostname": server.name,
            "arch": "aarch64",
            "os": f"{system.name} {system.version}",
            "kernel": system.kernel,
            "cpu_model": systems.CPU_MODEL,
            "cpus": cpus,
            "sockets": cpus // 48,
            "numa_nodes": cpus // 24,
            "mem_total_mb": systems.memory_mb(server),
            "python": system.python,
            "glibc": system.glibc,
            "driver": server.driver,
            "firmware": server.stack.firmware,
            "cann": server.stack.cann,
            "agent": VERSION,
            "root": "helper",
            "boot_id": f"demo-{server.name}",
            "topology": answers.links(server) if readable else None,
        },
    }
