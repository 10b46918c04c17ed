"""Reads NPUs and host once a second (npu-smi can be slow: never more than a fifth of the time) and leaves samples
for the link.

    python -m deployments.agent.sampler --config <config.json>
"""

import argparse
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from deployments.agent import devices, facts, facts_cluster, spool
from deployments.agent.config import Config, begin
from deployments.agent.engines import external, folder, now
from deployments.agent.environment import passed_on
from deployments.agent.fault_codes import FaultCodes
from deployments.agent.gateways import watch as gateways
from deployments.agent.host import HostMeter
from deployments.agent.outbox import Outbox
from deployments.agent.owners import Owners
from deployments.agent.tools import Output, Run, run_tool
from monitoring.parsers import ParseError, failures, npu_smi_info

log = logging.getLogger("sampler")

DEADLINE_S = 15.0
SHARE = 5  # of the time npu-smi takes, at least this many times as long is left between two readings
MIN_INTERVAL_S = 1.0
FACTS_S = 600.0
FACTS_AGAIN_S = 3600.0
MAX_RAW = 64 * 1024


class Sampler:
    """One server's. `host` replaces the figures of this machine's /proc; the demo gives figures of its own.

    `seq` grows by one from sample to sample and never goes back: it begins at the time of the start.
    """

    def __init__(
        self, config: Config, *, run: Run = run_tool, host: Callable[[], Mapping[str, float | None]] | None = None
    ) -> None:
        self.config = config
        self.run = run
        self.env = {**passed_on(), "LC_ALL": "C", **config.env}
        self.host = host or HostMeter(config.root / "proc", config.state_dir).read
        self.owners = Owners(config)
        self.fault_codes = FaultCodes(lambda argv, timeout_s: self.run(argv, env=self.env, timeout_s=timeout_s))
        self.external = external.Finder(config, self.owners)
        self.seq = int(time.time())
        self.told = ""
        self.told_at = 0.0

    def sample(self) -> dict[str, Any]:
        """One "sample" message. What npu-smi says is in `npus` and `processes`, or its raw text in `error`."""
        self.seq += 1
        began = time.monotonic()
        output = self.run(npu_smi_info.COMMAND, env=self.env, timeout_s=DEADLINE_S)
        took_ms = (time.monotonic() - began) * 1000
        reading = read(output)
        if reading["processes"]:
            self.owners.refresh()
            self.owners.runners |= {} if self.config.simulated else folder.sessions(self.config.state_dir)
        for process in reading["processes"]:
            process |= self.owners.of(process["pid"])
            if not self.config.simulated and facts_cluster.in_pod(self.owners.proc, process["pid"]):
                process["pod"] = True
        codes = self.fault_codes.of(reading["npus"])
        for npu in reading["npus"]:
            if told := codes.get((npu["npu"], npu["chip"])):
                npu["codes"] = told
        return {
            "type": "sample",
            "seq": self.seq,
            "t": round(time.time(), 3),
            "took_ms": round(took_ms, 1),
            "simulated": self.config.simulated,
            **reading,
            "host": dict(self.host()),
            **self._engines(),
            **gateways.told(self.config),
        }

    def _engines(self) -> dict[str, Any]:
        """{"engines"}, how each of ours is, and now and then {"external"}, those that somebody else started."""
        if self.config.simulated:
            return {}
        found = self.external.take()
        return {"engines": now.every(self.config), **({} if found is None else {"external": found})}

    def facts(self) -> dict[str, Any]:
        """One "facts" message."""
        return facts_message(self.collect())

    def collect(self) -> dict[str, Any]:
        return facts.collect(self.config, self.env, self.run)

    def facts_news(self) -> dict[str, Any]:
        """The "facts" message when they changed, and once an hour, for one may have been lost; else that they are the
        `same`, by their digest."""
        message, now = self.facts(), time.monotonic()
        found = message["facts"]["digest"]
        if found == self.told and now - self.told_at < FACTS_AGAIN_S:
            return {"type": "facts", "t": message["t"], "same": found}
        self.told, self.told_at = found, now
        return message


def facts_message(found: dict[str, Any]) -> dict[str, Any]:
    return {"type": "facts", "t": round(time.time(), 3), "facts": {**found, "digest": facts.digest(found)}}


def sample(config: Config, run: Run = run_tool) -> dict[str, Any]:
    """One sample with no sample before it: rates of the host are unknown."""
    return Sampler(config, run=run).sample()


def read(output: Output) -> dict[str, Any]:
    """{"version", "npus", "processes", "error"} of what `npu-smi info` printed.

    A server without the tool has no NPUs, and that is no error.
    """
    nothing: dict[str, Any] = {"version": None, "npus": [], "processes": [], "error": None}
    if output.problem == "not_found":
        return nothing
    if output.problem:
        return nothing | {"error": _error(None, output.problem, output.text)}
    try:
        info = npu_smi_info.parse(output.text)
    except ParseError as error:
        return nothing | {"error": _error(None, error.meaning, output.text)}
    if isinstance(info, failures.Unreadable):
        return nothing | {"error": _error(info.code, info.meaning, output.text)}
    # A table that was cut is shown as far as it goes, and says that there may be more.
    cut = _error(None, "not_understood", output.text) if info.cut else None
    return info.as_json() | {"error": cut}


def _error(code: int | None, meaning: str, text: str) -> dict[str, Any]:
    return {"code": code, "meaning": meaning, "text": text[:MAX_RAW]}


def pause_s(interval_s: float, took_s: float) -> float:
    """Seconds from the start of one reading to the start of the next."""
    return max(MIN_INTERVAL_S, interval_s, SHARE * took_s)


class Loop:
    """Samples for ever; facts are looked up at start, every 10 min, when npu-smi names another version, and when a job
    has changed them."""

    def __init__(self, sampler: Sampler, outbox: Outbox) -> None:
        self.sampler = sampler
        self.outbox = outbox
        self.facts_at = float("-inf")
        self.changed_at: int | None = None
        self.version: str | None = None

    def turn(self) -> float:
        """One sample; returns the seconds until the next is due."""
        began = time.monotonic()
        sample = self.sampler.sample()
        if sample["error"] is None:
            devices.remember(self.sampler.config.state_dir, sample)
        self.outbox.put(sample)
        changed = self._is_changed()
        if changed or began - self.facts_at >= FACTS_S or sample["version"] not in (None, self.version):
            self.facts_at, self.version = began, sample["version"] or self.version
            self.outbox.put(self.sampler.facts_news())
        due = began + pause_s(self.sampler.config.interval_s, sample["took_ms"] / 1000)
        return max(0.0, due - time.monotonic())

    def _is_changed(self) -> bool:
        """Whether a job has left word since the last time that facts may be others."""
        before = self.changed_at
        try:
            self.changed_at = (self.sampler.config.state_dir / spool.LOOK_AGAIN).stat().st_mtime_ns
        except OSError:
            self.changed_at = None
        return self.changed_at not in (None, before)


def main(argv: list[str] | None = None) -> int:
    _, config = begin(argparse.ArgumentParser(prog="deployments.agent.sampler"), argv)
    loop = Loop(Sampler(config), Outbox(config.telemetry))
    while True:
        try:
            wait = loop.turn()
        except OSError as error:  # a full disk: the next sample may find room
            log.warning("no sample was kept: %s", error)
            wait = MIN_INTERVAL_S
        time.sleep(wait)


if __name__ == "__main__":
    sys.exit(main())
