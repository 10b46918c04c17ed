"""`npu-smi info -t topo`: how each NPU reaches each other one, and the CPUs next to it."""

from dataclasses import dataclass
from typing import Any

from monitoring.parsers import failures
from monitoring.parsers._text import lines, word

COMMAND = ("npu-smi", "info", "-t", "topo")

SELF = "X"


@dataclass(frozen=True, slots=True)
class Topology:
    """The matrix without its diagonal, row by row, in the tool's words (HCCS, PIX, PHB, SYS, UB, ...)."""

    links: dict[str, dict[str, str]]
    cpu_affinity: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        return {"links": self.links, "cpu_affinity": self.cpu_affinity}


def parse(text: str) -> Topology | failures.Unreadable:
    """The rows that are whole; a row with fewer values than the header has columns is left out. Raises ParseError."""
    columns: list[str] = []
    links: dict[str, dict[str, str]] = {}
    affinity: dict[str, str] = {}
    for line in lines(text):
        values = [word(value) for value in line.split()]
        if "Affinity" in values:
            columns = [value for value in values if value not in ("CPU", "Affinity")]
        elif columns and values and values[0] in columns and len(values) >= len(columns) + 1:
            row = zip(columns, values[1:], strict=False)
            links[values[0]] = {name: link for name, link in row if link != SELF}
            if len(values) > len(columns) + 1:
                affinity[values[0]] = values[len(columns) + 1]
    return Topology(links, affinity) if links else failures.give_up(text)
