"""From the printed header of an `npu-smi info` table to a plan for reading its rows.

A cell of such a table holds several columns, and so does a cell of its header.
The plan names what each value of a row is. A column moved, widened, added or
given another known title therefore needs no new parser: a title that is not
known here takes up one value, which is left out of the reading.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from monitoring.parsers._text import UNKNOWN

# Titles without case, blanks, dashes and underscores. The unit belongs to the
# title: a column in another unit is another column, and so not read as MB.
TITLES = {
    "npu": "npu",
    "npuid": "npu",
    "name": "name",
    "health": "health",
    "healthstatus": "health",
    "power(w)": "power_w",
    "pwr(w)": "power_w",
    "npupower(w)": "power_w",
    "npurealtimepower(w)": "power_w",
    "temp(c)": "temp_c",
    "temperature(c)": "temp_c",
    "hugepagesusage(page)": "hugepages",
    "hugepages(page)": "hugepages",
    "chip": "chip",
    "chipid": "chip",
    "phyid": "phy_id",
    "device": "",  # counts over the whole server, as the device index does
    "slotid": "",
    "busid": "bus_id",
    "pcibusid": "bus_id",
    "pciebusid": "bus_id",
    "aicore(%)": "aicore_pct",
    "aicoreutil(%)": "aicore_pct",
    "aicoreusagerate(%)": "aicore_pct",
    "npuutil(%)": "aicore_pct",
    "npuutilization(%)": "aicore_pct",
    "memoryusage(mb)": "memory",
    "ddrusage(mb)": "memory",
    "hbmusage(mb)": "hbm",
    "processid": "pid",
    "processname": "process",
    "processmemory(mb)": "process_mb",
    "processidincontainer": "",
}
PAIRS = frozenset({"hugepages", "memory", "hbm"})  # printed as "used / total"
TEXTS = frozenset({"name", "process"})  # may hold blanks
MAX_TITLE_WORDS = 4
MAX_HEADER_ROWS = 8
MAX_WORDS = 64  # of a record

NOT_IN_TITLES = re.compile(r"[\s_-]+")
TITLE_WORD = re.compile(r"\S+")
VALUE = re.compile(r"[^\s/]+(?: *\/ *[^\s/]+)?|/")  # "0", "NA" or "0 / 65536"
ABSENT = "-"

# What a reading takes, in the order of its fields; True is the second word of a pair.
NPU = (
    ("npu", False),
    ("chip", False),
    ("phy_id", False),
    ("name", False),
    ("health", False),
    ("power_w", False),
    ("temp_c", False),
    ("hugepages", False),
    ("hugepages", True),
    ("bus_id", False),
    ("aicore_pct", False),
    ("memory", False),
    ("memory", True),
    ("hbm", False),
    ("hbm", True),
)
PROCESS = (("npu", False), ("chip", False), ("pid", False), ("process", False), ("process_mb", False))


class Column(NamedTuple):
    """One title of a header cell; an empty ``field`` is printed and not read."""

    field: str
    start: int  # where the title stands in its cell
    known: bool = True

    @property
    def width(self) -> int:
        """How many words a value of this column makes."""
        return 2 if self.field in PAIRS else 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One header cell: its columns, and what a full cell below it holds."""

    columns: tuple[Column, ...]
    words: int  # -1 where the width of a column is not known
    slashes: int
    is_text: bool  # ends in a text, which takes the rest of the cell


@dataclass(frozen=True, slots=True)
class Plan:
    """How to read the rows below one header: a record takes ``len(rows)`` lines."""

    rows: tuple[tuple[Cell, ...], ...]
    size: int  # words of a whole record
    is_process: bool
    has_chip: bool
    pick: Callable[[Sequence[str]], tuple[str, ...]]  # a record and ABSENT -> the words of PROCESS or NPU
    health: tuple[int, int] | None  # row, and word in it, that tell the kinds of rows apart
    bus_id: tuple[int, int] | None

    def fits(self, words: list[str], row: int) -> bool:
        """Whether a row can be this one of the record: health is a word and a bus id is none."""
        if self.health is not None and self.health[0] == row:
            health = words[self.health[1]]
            return ":" not in health and health != ABSENT and not health.isdecimal()
        if self.bus_id is not None and self.bus_id[0] == row:
            bus_id = words[self.bus_id[1]]
            return ":" in bus_id or bus_id in UNKNOWN
        return True


def _columns(cell: str) -> tuple[Column, ...]:
    """The titles of one header cell, each the longest known one; unknown words go on to the next gap."""
    found: list[Column] = []
    printed = list(TITLE_WORD.finditer(cell))
    at = 0
    while at < len(printed):
        start = printed[at].start()
        for end in range(min(at + MAX_TITLE_WORDS, len(printed)), at, -1):
            title = NOT_IN_TITLES.sub("", cell[start : printed[end - 1].end()]).lower()
            if title in TITLES:
                found.append(Column(TITLES[title], start))
                at = end
                break
        else:
            goes_on = bool(found) and not found[-1].known and printed[at - 1].end() + 1 == start
            if not goes_on:
                found.append(Column("", start, known=False))
            at += 1
    return tuple(found)


def _cell(text: str) -> Cell:
    columns = _columns(text)
    is_sure = all(column.known for column in columns)
    return Cell(
        columns,
        words=sum(column.width for column in columns) if is_sure else -1,
        slashes=sum(column.field in PAIRS for column in columns),
        is_text=is_sure and bool(columns) and columns[-1].field in TEXTS,
    )


def is_header(cells: list[str]) -> bool:
    """Whether a row cut at its bars holds titles: at least two known ones."""
    return sum(column.known for cell in cells for column in _columns(cell)) >= 2


@lru_cache(maxsize=64)
def plan(header: str) -> Plan | None:
    """The plan of one header, given as its lines; None where the titles do not name the NPU and something of it."""
    rows = tuple(tuple(_cell(text) for text in line.split("|")[1:-1]) for line in header.split("\n"))
    places: dict[str, int] = {}  # field -> index of its first word in a record
    spots: dict[str, tuple[int, int]] = {}  # field -> row and index in that row
    size = 0
    for number, row in enumerate(rows):
        start = size
        for column in (column for cell in row for column in cell.columns):
            if column.field and column.field not in places:
                places[column.field] = size
                spots[column.field] = (number, size - start)
            size += column.width
    is_process = "pid" in places
    if size > MAX_WORDS or "npu" not in places or not (is_process or {"bus_id", "memory", "hbm"} & places.keys()):
        return None
    wanted = PROCESS if is_process else NPU
    order = [places[field] + second if field in places else -1 for field, second in wanted]
    return Plan(rows, size, is_process, "chip" in places, itemgetter(*order), spots.get("health"), spots.get("bus_id"))


def words(cells: list[str], row: tuple[Cell, ...]) -> list[str]:
    """The words of one printed row in the order of its columns, two for a pair, ABSENT where none is printed.

    ``cells`` are the row cut at its bars. The last one lies behind the closing
    bar: where it is not empty the row is cut, and its last word with it.
    """
    if len(cells) != len(row) + 2 or cells[-1]:
        cells = _mended(cells, row)
    found: list[str] = []
    for at, cell in enumerate(row, 1):
        text = cells[at]
        if cell.is_text:
            printed = text.split(None, cell.words - 1)
        elif text.count("/") == cell.slashes:
            printed = text.replace("/", " ").split()
        else:
            printed = []
        found += printed if len(printed) == cell.words else _aligned(text, cell)
    return found


def _mended(cells: list[str], row: tuple[Cell, ...]) -> list[str]:
    """A row that is cut, short, or wide because a process name holds a bar, as cells for the plan."""
    cells = list(cells)
    if left := cells[-1].rstrip():
        cells[-1] = left[: -len(left.split()[-1])]
        cells.append("")
    surplus = len(cells) - len(row) - 2
    name = next((at for at, cell in enumerate(row, 1) if any(c.field == "process" for c in cell.columns)), None)
    if surplus > 0 and name is not None:
        cells[name : name + surplus + 1] = ["|".join(cells[name : name + surplus + 1])]
    return cells[: len(row) + 1] + [""] * (1 - min(surplus, 0))


def _aligned(text: str, cell: Cell) -> list[str]:
    """The words of a cell that is not full: in order if each column has a value, else what stands under its title."""
    values = {value.start(): value[0] for value in VALUE.finditer(text)}
    if len(values) == len(cell.columns):
        values = {column.start: value for column, value in zip(cell.columns, values.values(), strict=True)}
    found: list[str] = []
    for column in cell.columns:
        value = values.get(column.start, ABSENT)
        used, slash, total = value.partition("/")
        is_pair = column.field in PAIRS
        if is_pair != bool(slash) and column.known:
            used = total = ABSENT
        found += (used.strip(), total.strip()) if is_pair else (used,)
    return found
