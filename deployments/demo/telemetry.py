"""Samples and facts of simulated servers: their tables through the real parser, in the sampler's shapes."""

from typing import Any

from deployments.demo import answers, physics, systems, tables
from deployments.demo.fleet import DemoServer, Engine
from monitoring.parsers import npu_smi_info
from monitoring.parsers.failures import Unreadable

Engines = tuple[Engine, ...]


def sample(server: DemoServer, t: float, seq: int, engines: Engines, jobs: int = 0) -> dict[str, Any]:
    """One sample (shape: deployments/agent/sampler.py). `holders` adds which model a process serves."""
    reading = npu_smi_info.parse(tables.info(server, t, engines))
    made: dict[str, Any] = {
        "type": "sample",
        "seq": seq,
        "t": t,
        "took_ms": round(180 + 40 * physics.noise(server.index, int(t)) + 12 * len(server.chips), 1),
        "version": None,
        "simulated": True,
        "npus": [],
        "processes": [],
        "host": physics.host(server, t, engines, jobs),
        "error": None,
    }
    if isinstance(reading, Unreadable):
        made["error"] = {"code": reading.code, "meaning": reading.meaning, "text": reading.text}
        return made
    owners = {pid: engine for engine in engines for pid in engine.pids}
    made["version"] = reading.version
    made["npus"] = [npu._asdict() for npu in reading.npus]
    made["processes"] = [
        process._asdict() | _owner(owners.get(process.pid), t) for process in reading.processes
    ]
    made["holders"] = {str(pid): engine.holder for pid, engine in owners.items() if engine.holder}
    return made


def _owner(engine: Engine | None, t: float) -> dict[str, str | None]:
    if engine is None:
        return {"user": None, "command": None, "attempt": None}
    return {"user": engine.user, "command": engine.command or None, "attempt": engine.attempt}


def facts(server: DemoServer, t: float, agent: str) -> dict[str, Any]:
    """The facts message (shape: deployments/agent/sampler.py)."""
    system, cpus = systems.of(server), 96 if server.spec.layout == "p" else 192
    chips = tables.shown(server)
    return {
        "type": "facts",
        "t": t,
        "facts": {
            "hostname": server.name,
            "arch": "aarch64",
            "os": f"{system.name} {system.version}",
            "kernel": system.kernel,
            "cpu_model": "HUAWEI Kunpeng 920 5250",
            "cpus": cpus,
            "sockets": cpus // 48,
            "numa_nodes": cpus // 24,
            "mem_total_mb": physics.host(server, t, ())["mem_total_mb"],
            "python": system.python,
            "glibc": system.glibc,
            "driver": server.driver,
            "firmware": server.stack.firmware,
            "cann": server.stack.cann,
            "agent": agent,
            "boot_id": f"demo-{server.name}",
            "topology": {
                "npus": [f"NPU{chip.index if server.spec.dies == 2 else chip.npu}" for chip in chips],
                "matrix": [[answers.link_between(server, one, other) for other in chips] for one in chips],
            },
        },
    }
