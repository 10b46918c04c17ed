"""`npu-smi info -t proc-mem`: the memory of each process on one NPU."""

from dataclasses import asdict, dataclass
from typing import Any

from monitoring.parsers import failures
from monitoring.parsers._key_values import Value, pair, typed
from monitoring.parsers._text import integer, lines, word

COMMAND = ("npu-smi", "info", "-t", "proc-mem", "-i", "{npu_id}")

PID, NAME, MEMORY = "Process id", "Process name", "Process memory(MB)"


@dataclass(frozen=True, slots=True)
class Process:
    """One process; ``memory_mb`` in the MB npu-smi prints, which are MiB."""

    pid: int
    name: str
    memory_mb: int | None


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The processes in the order printed, and the keys above them."""

    values: dict[str, Value]
    processes: tuple[Process, ...]

    def as_json(self) -> dict[str, Any]:
        return {"values": self.values, "processes": [asdict(process) for process in self.processes]}


def parse(text: str) -> ProcessMemory | failures.Unreadable:
    """The processes of one NPU; a line cut before the memory is left out. Raises ParseError."""
    values: dict[str, Value] = {}
    processes: list[Process] = []
    for line in lines(text):
        key, value = pair(line)
        if key == PID:
            processes += _process(value)
        elif key:
            values.setdefault(key, typed(key, value))
    if "NPU ID" not in values and not processes:
        return failures.give_up(text)
    return ProcessMemory(values, tuple(processes))


def _process(line: str) -> list[Process]:
    """The process of a line from behind its first colon, none where the line is not whole."""
    pid, has_name, rest = line.partition(NAME)
    name, has_memory, memory = rest.rpartition(MEMORY)
    number = integer(pid.strip())
    if number is None or not has_name or not has_memory:
        return []
    return [Process(number, word(name.strip().removeprefix(":")), integer(memory.strip(" :")))]
