"""Figures of the host itself, from /proc: load, CPU, memory, disk, network. What cannot be read is None."""

import os
import time
from pathlib import Path

Figures = dict[str, float | None]


class HostMeter:
    """`read` gives the figures; rates are those since the call before, None at the first."""

    def __init__(self, proc: Path = Path("/proc"), disk: Path = Path("/")) -> None:
        self.proc = proc
        self.disk = disk
        self.cpu: tuple[float, float] | None = None
        self.net: tuple[float, int, int] | None = None

    def read(self) -> Figures:
        memory = self._memory()
        return {
            "load1": self._number("loadavg"),
            "cpu_pct": self._cpu_pct(),
            "cpus": os.cpu_count(),
            "mem_used_mb": memory[0],
            "mem_total_mb": memory[1],
            **self._disk(),
            **self._network(),
            "uptime_s": self._number("uptime"),
        }

    def _text(self, name: str) -> str:
        try:
            return (self.proc / name).read_text(errors="replace")
        except OSError:
            return ""

    def _number(self, name: str) -> float | None:
        """The first number of a file."""
        try:
            return float(self._text(name).split()[0])
        except (IndexError, ValueError):
            return None

    def _cpu_pct(self) -> float | None:
        fields = self._text("stat").partition("\n")[0].split()[1:9]
        try:
            ticks = [float(field) for field in fields]
            idle, total = ticks[3] + ticks[4], sum(ticks)
        except (ValueError, IndexError):
            return None
        before, self.cpu = self.cpu, (idle, total)
        if before is None or total <= before[1]:
            return None
        return round(100 * (1 - (idle - before[0]) / (total - before[1])), 1)

    def _memory(self) -> tuple[float | None, float | None]:
        found = {}
        for line in self._text("meminfo").splitlines():
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable") and rest.split()[:1]:
                found[name] = int(rest.split()[0]) / 1024
        total, available = found.get("MemTotal"), found.get("MemAvailable")
        used = total - available if total is not None and available is not None else None
        return _rounded(used), _rounded(total)

    def _disk(self) -> Figures:
        """The file system that the agent keeps its spools on; GB are 2^30 bytes."""
        try:
            found = os.statvfs(self.disk)
        except OSError:
            return {"disk_used_gb": None, "disk_total_gb": None}
        unit = found.f_frsize / 2**30
        return {
            "disk_used_gb": round((found.f_blocks - found.f_bfree) * unit, 1),
            "disk_total_gb": round(found.f_blocks * unit, 1),
        }

    def _network(self) -> Figures:
        """kB/s of all interfaces but loopback, received and sent."""
        lines = self._text("net/dev").splitlines()[2:]
        counts = [line.partition(":")[2].split() for line in lines if line.partition(":")[0].strip() != "lo"]
        try:
            received, sent = sum(int(c[0]) for c in counts), sum(int(c[8]) for c in counts)
        except (ValueError, IndexError):
            return {"rx_kbps": None, "tx_kbps": None}
        now = time.monotonic()
        before, self.net = self.net, (now, received, sent)
        if not lines or before is None or now <= before[0] or received < before[1] or sent < before[2]:
            return {"rx_kbps": None, "tx_kbps": None}
        took = now - before[0]
        return {
            "rx_kbps": round((received - before[1]) / took / 1000, 1),
            "tx_kbps": round((sent - before[2]) / took / 1000, 1),
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value)
