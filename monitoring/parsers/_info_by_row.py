"""`npu-smi info` read row by row: the way through every table that is cut, shifted, retyped or surrounded."""

from monitoring.parsers import _info_columns as columns
from monitoring.parsers._info_readings import Info, Npu, Process, ends_open
from monitoring.parsers._text import decimal, integer, known_word, lines, word


def read(text: str) -> Info | None:
    """One table; of a chip printed twice the later row counts, so a series of tables is the last of them.

    None where no NPU is printed. Raises ParseError where the text is too long.
    """
    reader = Reader(lines(text))
    for at, line in enumerate(reader.lines):
        if line[:1] == "|" or line.lstrip()[:1] == "|":
            reader.read(at, line.strip().split("|"))
        elif reader.record or reader.header:
            reader.end_block()
    reader.end_block()
    npus = {(npu.npu, npu.chip): npu for npu in reader.npus}
    cut = reader.cut or ends_open(text)
    return Info(reader.version, tuple(npus.values()), tuple(reader.processes), cut) if npus else None


class Reader:
    """What stands between two lines: the plan in force, and a header and a record that may go on."""

    __slots__ = ("chips", "cut", "header", "lines", "npus", "plan", "processes", "record", "row", "version")

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.version: str | None = None
        self.npus: list[Npu] = []
        self.chips: dict[int, int] = {}  # rows so far by NPU
        self.processes: list[Process] = []
        self.cut = False
        self.plan: columns.Plan | None = None
        self.header: list[str] = []  # its lines so far
        self.record: list[str] = []  # the words of its rows so far
        self.row = 0  # of the record, the next one

    def read(self, at: int, cells: list[str]) -> None:
        """One line that starts with a bar, cut at its bars: a row of values, of titles, or a sentence."""
        first = cells[1].lstrip()
        if first[:1].isdecimal() or (self.record and not first):
            self.read_values(at, cells)
        elif first.startswith("npu-smi"):
            printed = first.split()[1 : 2 if not cells[-1] or len(first.split()) > 2 else 1]
            self.version = word(printed[0]) if printed else None
        elif first.startswith("No "):  # "No running processes found in NPU 0"
            pass
        elif not cells[-1] and len(self.header) < columns.MAX_HEADER_ROWS and columns.is_header(cells):
            self.header.append("|".join(cells))

    def read_values(self, at: int, cells: list[str]) -> None:
        """A row below a header, or below none where the text starts in the middle of a table."""
        if self.header:
            self.end_block()
        if self.plan is None:
            self.plan = columns.plan(_guessed_header(cells, self.lines[at + 1 : at + 2]))
        if cells[-1]:
            self.cut = True
        if self.plan is None:
            return
        if self.plan.is_process:
            self.add_process(self.plan, cells)
        else:
            self.add_row(self.plan, cells)

    def add_row(self, plan: columns.Plan, cells: list[str]) -> None:
        """The next row of a record, or the first of a new one where the last was left incomplete."""
        words = columns.words(cells, plan.rows[self.row])
        if self.row and not plan.fits(words, self.row):
            self.end_record(plan)
            words = columns.words(cells, plan.rows[0])
        if not self.row and not plan.fits(words, 0):
            self.add_loose(cells)
            return
        self.record += words
        self.row += 1
        if self.row == len(plan.rows):
            self.end_record(plan)

    def add_loose(self, cells: list[str]) -> None:
        """A row that is no first row of a record: a process below a header that is missing, or one half of a record."""
        guess = columns.plan(_guessed_header(cells, []))
        if guess and guess.is_process:
            self.add_process(guess, cells)
        else:
            self.cut = True

    def end_record(self, plan: columns.Plan) -> None:
        """One NPU from the rows read; a chip that is not printed is the next one of its NPU."""
        record, rows = self.record, self.row
        self.record, self.row = [], 0
        if rows < len(plan.rows):
            self.cut = True
        record += [columns.ABSENT] * (plan.size + 1 - len(record))
        npu, chip, phy_id, name, health, power, temp, pages, all_pages, bus_id, aicore, used, all_, hbm, all_hbm = (
            plan.pick(record)
        )
        npu_id, chip_id = integer(npu), integer(chip)
        if npu_id is None:
            self.cut = True
            return
        if chip_id is None:
            chip_id = self.chips.get(npu_id, 0) if plan.has_chip else 0
        self.chips[npu_id] = self.chips.get(npu_id, 0) + 1
        self.npus.append(
            Npu(
                npu_id,
                chip_id,
                integer(phy_id),
                known_word(name),
                known_word(health),
                decimal(power),
                integer(temp),
                integer(pages),
                integer(all_pages),
                known_word(bus_id),
                integer(aicore),
                integer(used),
                integer(all_),
                integer(hbm),
                integer(all_hbm),
            )
        )

    def add_process(self, plan: columns.Plan, cells: list[str]) -> None:
        """One process; a row whose NPU, process id or name is not complete is left out."""
        row = plan.rows[0]
        npu, chip, pid, name, memory = plan.pick([*columns.words(cells, row), columns.ABSENT])
        npu_id, process_id = integer(npu), integer(pid)
        if npu_id is None or process_id is None or len(cells) < len(row) + 1:
            self.cut = True
            return
        shown = "" if name == columns.ABSENT else word(name)
        self.processes.append(Process(npu_id, integer(chip) or 0, process_id, shown, integer(memory)))

    def end_block(self) -> None:
        """A line that is no row: the header above it is complete, and so is the record."""
        if self.record and self.plan:
            self.end_record(self.plan)
        if self.header:
            self.plan = columns.plan("\n".join(self.header))
            self.header = []


def _guessed_header(cells: list[str], below: list[str]) -> str:
    """A header for a table that starts in its middle, from the shape of its first two rows."""
    if len(cells) > 5 and cells[2].strip().isdecimal() and cells[4].strip().isdecimal():
        ids = "NPU  Chip" if len(cells[1].split()) > 1 else "NPU ID"
        return f"|{ids}|Process id|Process name|Process memory(MB)|" + "Process id in container|" * (len(cells) > 6)
    chip = below[0].strip().split("|") if below else []
    usages = chip[-2].count("/") if len(chip) >= len(cells) else 2
    ids = ("", "Chip", "Chip  Phy-ID" if usages > 1 else "Chip  Device")[
        min(len(chip[1].split()), 2) if len(chip) > 1 else 1
    ]
    card = "NPU  Name" if len(cells) < 6 else "NPU ID|Name"
    pages = "  Hugepages-Usage(page)" if "/" in cells[-2] else ""
    hbm = "  HBM-Usage(MB)" if usages > 1 else ""
    return (
        f"|{card}|Health|Power(W)  Temp(C){pages}|\n"
        f"|{ids}|{'|' * (len(cells) > 5)}Bus-Id|AICore(%)  Memory-Usage(MB){hbm}|"
    )
