"""`npu-smi info`: the table of all NPUs and of the processes on them, in every layout.

The header says what a row holds (`_info_columns.py`), so two-row and dual-die
tables, tables with and without HBM, borderless, cut and widened ones are read
by the same plan. A whole table goes by one pattern made of that plan, every
other text row by row; both give the same reading.
"""

from monitoring.parsers import _info_by_row, _info_whole, failures
from monitoring.parsers._info_readings import Info, Npu, Process

__all__ = ["COMMAND", "Info", "Npu", "Process", "parse"]

COMMAND = ("npu-smi", "info")


def parse(text: str) -> Info | failures.Unreadable:
    """One reading per chip and per process, in the order printed, or the failure printed instead. Raises ParseError."""
    return _info_whole.read(text) or _info_by_row.read(text) or failures.give_up(text)
