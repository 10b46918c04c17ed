"""`npu-smi info` in the layouts that drivers print, column for column.

A server's table is one format string made once; each second it is filled with the readings.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from deployments.demo import fleet, physics
from deployments.demo.fleet import Chip, DemoServer, Engine, Spec
from deployments.demo.physics import Held, Reading

NARROW, WIDE, DUO, A5 = (27, 15, 52), (27, 15, 70), (31, 17, 54), (8, 18, 15, 53)
FAILED = "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\ndcmi module initialize failed. ret is {}\n"


class Layout(NamedTuple):
    """Widths of the cells, the two header rows, and the head of the process table with its format."""

    cells: tuple[int, ...]
    head: tuple[str, str]
    process_cells: tuple[int, ...]
    process_head: str
    process_row: str  # npu, chip, pid, name, memory
    version_at: int = 35  # where `Version:` stands in the title


CARD = "NPU   Name                | Health        | "
CHIP = "Chip                      | Bus-Id        | "
DIE = "Chip  Phy-ID              | Bus-Id        | "
TOP_NARROW = "Power(W)    Temp(C)           Hugepages-Usage(page)|"
LOW_NARROW = "AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |"
TOP_WIDE = "Power(W)             Temp(C)                 Hugepages-Usage(page)   |"
LOW_WIDE = "AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |"
PROCESS = "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |"
PROCESS_ROW = "| {:<8}{:<18}| {:<14}| {:<25}| {:<24}|"
NAMES_WIDE = "Process name       | Process memory(MB)    | Process id in container |"
PROCESS_WIDE = f"| NPU     Chip              | Process id    | {NAMES_WIDE}"
PROCESS_ROW_WIDE = "| {:<8}{:<18}| {:<14}| {:<19}| {:<22}| NA                      |"
TOP_DUO = "Power(W)     Temp(C)           Hugepages-Usage(page) |"
LOW_DUO = "AICore(%)    Memory-Usage(MB)                        |"
LAYOUTS = {
    "a2": Layout(NARROW, (f"| {CARD}{TOP_NARROW}", f"| {CHIP}{LOW_NARROW}"), NARROW, PROCESS, PROCESS_ROW),
    "a3": Layout(NARROW, (f"| {CARD}{TOP_NARROW}", f"| {DIE}{LOW_NARROW}"), NARROW, PROCESS, PROCESS_ROW),
    "w26": Layout(WIDE, (f"| {CARD}{TOP_WIDE}", f"| {CHIP}{LOW_WIDE}"), WIDE, PROCESS_WIDE, PROCESS_ROW_WIDE, 46),
    "w26a3": Layout(WIDE, (f"| {CARD}{TOP_WIDE}", f"| {DIE}{LOW_WIDE}"), WIDE, PROCESS_WIDE, PROCESS_ROW_WIDE, 46),
    "p": Layout(
        DUO,
        (
            f"| NPU     Name                  | Health          | {TOP_DUO}",
            f"| Chip    Device                | Bus-Id          | {LOW_DUO}",
        ),
        DUO,
        "| NPU     Chip                  | Process id      | Process name             | Process memory(MB)        |",
        "| {:<8}{:<22}| {:<16}| {:<25}| {:<26}|",
        51,
    ),
    "950": Layout(
        A5,
        (
            "| NPU ID | Name             | Health        | Power(W)    Temp(C)           Hugepages-Usage(page) |",
            "|        |                  | Bus-Id        | NPU Util(%) Memory-Usage(MB)  HBM-Usage(MB)         |",
        ),
        (27, 15, 53),
        "| NPU ID                    | Process id    | Process name             | Process memory(MB)       |",
        "| {0:<26}| {2:<14}| {3:<25}| {4:<25}|",
        51,
    ),
}


def rule(cells: tuple[int, ...], line: str = "-") -> str:
    return "+" + "+".join(line * width for width in cells) + "+"


def info(server: DemoServer, t: float, engines: tuple[Engine, ...] | None = None) -> str:
    """What `npu-smi info` prints on that server at that second, a driver that does not answer included."""
    if (code := server.quirks.get("unreadable")) is not None:
        return FAILED.format(code)
    running = server.engines if engines is None else engines
    values: list[object] = []
    read = physics.readings(server, t, running)
    for chip in shown(server):
        _fill(values, server, chip, read[chip.index])
    frame = _frame(server.index, server.spec)
    return frame % tuple(values) + _process_table(server, physics.processes(server, t, running))


def shown(server: DemoServer) -> list[Chip]:
    """The chips that the driver sees: a lost one is on the bus only."""
    return [chip for chip in server.chips if chip.index != server.quirks.get("lost")]


def _fill(values: list[object], server: DemoServer, chip: Chip, reading: Reading) -> None:
    """The values of one chip in the order of its two rows."""
    spec = server.spec
    watts: object = "NA" if reading.watts is None else reading.watts if chip.chip == 0 else "-"
    pages = 0 if spec.hbm_mb is not None else (reading.used_mb - spec.idle_mb) // 2
    values += (reading.health, watts, reading.celsius, pages, pages, reading.aicore)
    if spec.hbm_mb is None:
        values.append(reading.used_mb)
    else:
        values += (1410 + chip.index * 37 if spec.ddr_mb else 0, reading.used_mb)


@lru_cache(maxsize=8192)
def _frame(index: int, spec: Spec) -> str:
    """The format string of a server's table: title, heads, two rows for each chip."""
    server = replace(fleet.server(index), spec=spec)
    layout, version = LAYOUTS[server.spec.layout], server.spec.version
    whole = "+" + "-" * (sum(layout.cells) + len(layout.cells) - 1) + "+"
    title = f"| npu-smi {version}".ljust(layout.version_at) + f"Version: {version}"
    head = [row.replace("%", "%%") for row in layout.head]
    lines = [whole, f"{title:<{len(whole) - 1}}|", rule(layout.cells), *head, rule(layout.cells, "=")]
    chips = shown(server)
    for place, chip in enumerate(chips):
        lines += _rows(server, chip)
        same_card = place + 1 < len(chips) and chips[place + 1].npu == chip.npu
        between = rule(layout.cells) if server.spec.layout == "p" else whole
        lines.append(between if same_card else rule(layout.cells, "="))
    return "\n".join(lines) + "\n"


def _rows(server: DemoServer, chip: Chip) -> list[str]:
    spec = server.spec
    if spec.layout == "p":
        return [
            f"| {chip.npu:<8}{spec.chip:<22}| %-16s| %-13s%-18s%-6s/ %-14s|",
            f"| {chip.chip:<8}{chip.index:<22}| {chip.bus_id:<16}| %-13s%-5s/ {spec.ddr_mb - chip.chip * 587:<33}|",
        ]
    if spec.layout == "950":
        return [
            f"| {chip.npu:<7}| {spec.chip:<17}| %-14s| %-12s%-18s%-6s/ %-14s|",
            f"|        |                  | {chip.bus_id:<14}| %-12s%-5s/ {spec.ddr_mb:<11}%-6s/ {spec.hbm_mb:<14}|",
        ]
    place = f"{chip.chip:<6}{chip.phy_id:<20}" if chip.phy_id is not None else f"{chip.chip:<26}"
    if spec.layout.startswith("w26"):
        card, low = "%-21s%-24s%-5s/ %-17s", f"%-21s%-5s/ {spec.ddr_mb:<17}%-5s/ {spec.hbm_mb:<17}"
    else:
        card, low = "%-12s%-18s%-5s/ %-14s", f"%-12s%-5s/ {spec.ddr_mb:<11}%-5s/ {spec.hbm_mb:<14}"
    return [f"| {chip.npu:<6}{spec.chip:<20}| %-14s| {card}|", f"| {place}| {chip.bus_id:<14}| {low}|"]


def _process_table(server: DemoServer, held: list[Held]) -> str:
    layout, chips = LAYOUTS[server.spec.layout], server.chips
    line, double = rule(layout.process_cells), rule(layout.process_cells, "=")
    lines = [line, layout.process_head, double]
    width, at = len(line) - 2, 0
    for npu in dict.fromkeys(chip.npu for chip in shown(server)):
        rows = []
        while at < len(held) and chips[held[at].chip].npu <= npu:
            if chips[held[at].chip].npu == npu:
                chip = chips[held[at].chip]
                rows.append(
                    layout.process_row.format(npu, chip.chip, held[at].pid, held[at].name[:15], held[at].memory_mb)
                )
            at += 1
        lines += rows or [f"| No running processes found in NPU {npu:<{width - 35}}|"]
        lines.append(double)
    return "\n".join(lines) + "\n"
