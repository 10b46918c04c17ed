"""`hccn_tool -lldp`: the switch port behind an NPU, as the switch announces it."""

from dataclasses import asdict, dataclass
from typing import Any

from monitoring.parsers import failures
from monitoring.parsers._key_values import pair
from monitoring.parsers._text import integer, known_word, lines

COMMAND = ("hccn_tool", "-i", "{device_index}", "-lldp", "-g")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The switch's name of the port and its largest frame in bytes; None where it announces none."""

    ifname: str | None
    max_frame: int | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def parse(text: str) -> Neighbour | failures.Unreadable:
    """The port a cable leads to. Raises ParseError where no announcement is printed."""
    ifname: str | None = None
    max_frame: int | None = None
    heading = ""
    is_lldp = False
    for line in lines(text):
        bare = line.strip()
        if bare.endswith(" TLV"):
            heading, is_lldp = bare, True
        elif heading == "Maximum Frame Size TLV" and max_frame is None:
            max_frame = integer(bare)
        elif pair(line)[0] == "Ifname":
            ifname = known_word(pair(line)[1])
    return Neighbour(ifname, max_frame) if is_lldp else failures.give_up(text)
