"""`npu-smi info -l`: the NPU ids of a server and the chips of each."""

from dataclasses import dataclass
from typing import Any

from monitoring.parsers import failures
from monitoring.parsers._key_values import pair
from monitoring.parsers._text import integer, lines

COMMAND = ("npu-smi", "info", "-l")


@dataclass(frozen=True, slots=True)
class Card:
    """One NPU id; ``chip_count`` is None where it is not printed."""

    npu: int
    chip_count: int | None


@dataclass(frozen=True, slots=True)
class Cards:
    """The NPUs in the order printed; ``total`` is what the tool says, which a cut text falls short of."""

    total: int | None
    npus: tuple[Card, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "total": self.total,
            "npus": [{"npu": card.npu, "chip_count": card.chip_count} for card in self.npus],
        }


def parse(text: str) -> Cards | failures.Unreadable:
    """The NPUs of a server, none where the tool counts none. Raises ParseError."""
    total: int | None = None
    chips: dict[int, int | None] = {}
    npu: int | None = None
    for line in lines(text):
        key, value = pair(line)
        number = integer(value)
        if key == "Total Count":
            total = number
        elif key == "NPU ID":
            npu = number
            if npu is not None:
                chips.setdefault(npu, None)
        elif key == "Chip Count" and npu is not None:
            chips[npu] = number
    if not chips and total != 0:
        return failures.give_up(text)
    return Cards(total, tuple(Card(npu, count) for npu, count in chips.items()))
