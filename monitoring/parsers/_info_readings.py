"""What `npu-smi info` tells: NPUs, and the processes on them."""

from typing import Any, NamedTuple


class Npu(NamedTuple):
    """One chip at one moment; None is what the tool does not print or does not know.

    The MB are those npu-smi prints, which are MiB. ``chip`` counts from 0
    within its NPU, also where the table has no column for it (950 family).
    """

    npu: int
    chip: int
    phy_id: int | None
    name: str | None
    health: str | None
    power_w: float | None
    temp_c: int | None
    hugepages_used: int | None
    hugepages_total: int | None
    bus_id: str | None
    aicore_pct: int | None
    memory_used_mb: int | None
    memory_total_mb: int | None
    hbm_used_mb: int | None
    hbm_total_mb: int | None


class Process(NamedTuple):
    """One process on one chip; npu-smi cuts names at 15 characters and prints none for another container's process."""

    npu: int
    chip: int
    pid: int
    name: str
    memory_mb: int | None


class Info(NamedTuple):
    """One table: NPUs and processes in the order printed."""

    version: str | None
    npus: tuple[Npu, ...]
    processes: tuple[Process, ...]
    cut: bool = False  # a row is not whole, or the table has no end: NPUs or processes may be missing

    def as_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "npus": [npu._asdict() for npu in self.npus],
            "processes": [process._asdict() for process in self.processes],
        }


def ends_open(text: str) -> bool:
    """Whether the last line of a table is a row, without the border that closes it."""
    return text.rfind("\n|") > text.rfind("\n+")
