"""`npu-smi info` at once: the quick way through a table that is whole and well formed.

One pattern, made of the plan of the header, takes all NPUs, another all
processes. The bars of the text are counted afterwards: where one is left over,
a row was not understood, and the table is read row by row instead.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from monitoring.parsers import _info_columns as columns
from monitoring.parsers._info_readings import Info, Npu, Process, ends_open
from monitoring.parsers._text import UNKNOWN, known_word, word

MAX_CHARS = 100_000  # a longer text is no plain table

HEAD = re.compile(r"(?:\A|\n)\| npu-smi (\S{1,64})  [^|\n]*\|\n\+[^\n]*\n((?:\|[^\n]*\|\n){1,4})\+")
IDLE = "\n| No running processes found in NPU "

# One word of each kind of column. No two neighbours of a pattern can take the
# same character, so a row that does not fit is given up in one pass.
WHOLE = r"(\d{1,15})"
SHAPES = {
    "name": r"([!-{}~][ -{}~]{0,80})",
    "process": r"(|[!-{}~][ -{}~]{0,80})",
    "health": r"([A-Za-z]{1,20})",
    "bus_id": r"([0-9A-Fa-f]+:[0-9A-Fa-f:.]+|NA)",
    "power_w": r"(\d{1,9}\.\d{1,4}|NA|-)",
    "": r"([^ |\n]+)",
    **dict.fromkeys(columns.PAIRS, rf"{WHOLE} */ *{WHOLE}"),
}


def read(text: str) -> Info | None:
    """One table, each chip once; None where the text has to be read row by row."""
    if len(text) > MAX_CHARS or "\x1b" in text or "\r" in text:
        return None
    head = HEAD.search(text)
    if head is None:
        return None
    header = head[2][:-1]
    title = text.find("Process", head.end())
    end = text.rfind("\n", 0, title) + 1 if title >= 0 else len(text)
    recipe = _recipe(header)
    if recipe is None:
        return None
    plan, pattern = recipe
    rows = pattern.findall(text, head.end(), end)
    if text.count("|", 0, end) != 2 + (1 + len(rows)) * header.count("|"):
        return None
    processes = _processes(text, end) if title >= 0 else ()
    if processes is None:
        return None
    npus = {(npu.npu, npu.chip): npu for npu in _npus(plan, rows)}
    return Info(word(head[1]), tuple(npus.values()), processes, ends_open(text)) if npus else None


@lru_cache(maxsize=64)
def _recipe(header: str) -> tuple[columns.Plan, re.Pattern[str]] | None:
    """The plan of a header and the pattern of one record below it; None where a column is not known."""
    plan = columns.plan(header)
    if plan is None or any(cell.words < 0 for row in plan.rows for cell in row):
        return None
    rows: list[str] = []
    for row in plan.rows:
        cells = (" +".join(SHAPES.get(column.field, WHOLE) for column in cell.columns) for cell in row)
        rows.append("".join(rf"\| *{cell} *" if cell else r"\| *" for cell in cells) + r"\|")
    return plan, re.compile("\n" + "\n".join(rows) + r"(?![^\n])")  # whole lines


def _npus(plan: columns.Plan, rows: list[tuple[str, ...]]) -> Iterator[Npu]:
    """One reading per record; the pattern lets nothing but numbers through where one is read."""
    pick = plan.pick
    for row in rows:
        npu, chip, phy, name, health, power, temp, pages, all_pages, bus, aicore, used, all_, hbm, all_hbm = pick(
            (*row, "-")
        )
        yield Npu(
            int(npu),
            0 if chip == "-" else int(chip),
            None if phy == "-" else int(phy),
            known_word(name),
            None if health in UNKNOWN else health,
            None if power in UNKNOWN else float(power),
            None if temp == "-" else int(temp),
            None if pages == "-" else int(pages),
            None if all_pages == "-" else int(all_pages),
            None if bus in UNKNOWN else bus,
            None if aicore == "-" else int(aicore),
            None if used == "-" else int(used),
            None if all_ == "-" else int(all_),
            None if hbm == "-" else int(hbm),
            None if all_hbm == "-" else int(all_hbm),
        )


def _processes(text: str, start: int) -> tuple[Process, ...] | None:
    """The process table from the start of its header; None where a row of it is not understood."""
    line_end = text.find("\n", start)
    if line_end < 0:
        return None
    header = text[start:line_end]
    recipe = _recipe(header)
    if recipe is None or not recipe[0].is_process:
        return None
    plan, pattern = recipe
    rows = pattern.findall(text, line_end)
    if text.count("|", start) != header.count("|") * (1 + len(rows)) + 2 * text.count(IDLE, line_end):
        return None
    picked = [plan.pick((*row, "-")) for row in rows]
    return tuple(
        [
            Process(int(npu), 0 if chip == "-" else int(chip), int(pid), name.rstrip(), None if mb == "-" else int(mb))
            for npu, chip, pid, name, mb in picked
        ]
    )
