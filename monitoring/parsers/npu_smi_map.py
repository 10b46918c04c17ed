"""`npu-smi info -m`: which chip of which NPU has which logical or physical id."""

import re
from dataclasses import dataclass
from typing import Any

from monitoring.parsers import failures
from monitoring.parsers._text import integer, lines, word

COMMAND = ("npu-smi", "info", "-m")

TITLES = {
    "npu id": "npu",
    "slot id": "slot",
    "chip id": "chip",
    "chip logic id": "logic_id",
    "chip phy-id": "phy_id",
    "chip name": "name",
}
GAP = re.compile(r"\s{2,}|\t")


@dataclass(frozen=True, slots=True)
class Chip:
    """One row; None where the column is missing or holds "-", as for the controller (Mcu) of a card."""

    npu: int
    chip: int | None = None
    slot: int | None = None
    logic_id: int | None = None
    phy_id: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Map:
    """The rows in the order printed, and which columns the header has."""

    rows: tuple[Chip, ...]
    columns: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {"rows": [{column: getattr(row, column) for column in self.columns} for row in self.rows]}


def parse(text: str) -> Map | failures.Unreadable:
    """All rows below the header, read by its titles; a title not known is left out. Raises ParseError."""
    fields: list[str] = []
    rows: list[Chip] = []
    for line in lines(text):
        titles = [TITLES.get(title.lower(), "") for title in GAP.split(line.strip())]
        if titles.count("") < len(titles) - 1 and "npu" in titles:
            fields = titles
        elif fields and (row := _row(line.split(None, len(fields) - 1), fields)):
            rows.append(row)
    if not rows:
        return failures.give_up(text)
    return Map(tuple(rows), tuple(field for field in fields if field))


def _row(values: list[str], fields: list[str]) -> Chip | None:
    """One row with a value in each column, None for any other line."""
    if len(values) != len(fields):
        return None
    printed = {field: value for field, value in zip(fields, values, strict=True) if field}
    npu = integer(printed.pop("npu"))
    if npu is None:
        return None
    name = word(printed.pop("name", ""))
    return Chip(npu, name=name, **{field: integer(value) for field, value in printed.items()})
