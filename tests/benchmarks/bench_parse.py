"""Microseconds to read one 8-NPU `npu-smi info` table, beside a plain split of its lines in the same run.

Run by `make bench`, or alone: `python -m tests.benchmarks.bench_parse`.
"""

import timeit
from collections.abc import Callable
from pathlib import Path

from monitoring.parsers import _info_by_row, _info_whole, npu_smi_info

FIXTURE = Path(__file__).parents[1] / "fixtures" / "npu_smi" / "info_a2_910b4_25.2.3.txt"
REPEATS, RUNS = 60, 50


def tables() -> dict[str, tuple[str, int]]:
    """Table and budget in microseconds: without a process table, and with 15 processes."""
    whole = FIXTURE.read_text(encoding="utf-8")
    border = "+===========================+===============+" + "=" * 52 + "+\n"
    start = whole.index("| NPU     Chip")
    head = whole[: whole.index("\n", start) + 1]
    row = "| {}       0                 | {}         | VLLMWorker_TP            | {}                   |\n"
    rows = [row.format(n % 8, 41300 + n, 27004 + n) for n in range(15)]
    cards = whole[: whole.rindex("+-", 0, start)]
    return {
        "without processes": (cards[: cards.rindex("+\n", 0) + 2], 60),
        "with 15 processes": (head + border + border.join(rows) + border, 120),
    }


def microseconds(call: Callable[[], object]) -> float:
    """The best of some runs: what the work takes when nothing else wants the core."""
    return min(timeit.repeat(call, number=RUNS, repeat=REPEATS)) / RUNS * 1e6


def main() -> None:
    for name, (text, budget) in tables().items():
        reading = npu_smi_info.parse(text)
        assert isinstance(reading, npu_smi_info.Info) and len(reading.npus) == 8 and _info_whole.read(text) == reading
        plain = microseconds(lambda text=text: [line.split() for line in text.splitlines()])  # type: ignore[misc]
        ours = microseconds(lambda text=text: npu_smi_info.parse(text))  # type: ignore[misc]
        by_row = microseconds(lambda text=text: _info_by_row.read(text))  # type: ignore[misc]
        print(
            f"parse, 8 NPUs {name}: {ours:.0f} µs (budget {budget}), "
            f"plain split {plain:.0f} µs, ratio {ours / plain:.1f}; row by row {by_row:.0f} µs"
        )


if __name__ == "__main__":
    main()
