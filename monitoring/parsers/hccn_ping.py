"""`hccn_tool -ping` and, inside a super-pod, `-hccs_ping`: whether an NPU reaches an address of another."""

import re
from dataclasses import asdict, dataclass
from typing import Any

from monitoring.parsers import _text, failures

COMMAND = ("hccn_tool", "-i", "{device_index}", "-ping", "-g", "address", "{address}")
HEAD = re.compile(r"device\s+(\d{1,4})\s+PING\s+(\S{1,64})", re.ASCII)
SUM = re.compile(r"(\d{1,6}) packets transmitted, (\d{1,6}) received", re.ASCII)


@dataclass(frozen=True)
class Ping:
    """Packets sent and received; `device` and `address` are None where they are not printed."""

    device: int | None
    address: str | None
    sent: int
    received: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def parse(text: str) -> Ping | failures.Unreadable:
    """Raises ParseError where it does not say how many came back."""
    device = address = None
    for line in _text.lines(text):
        if head := HEAD.search(line):
            device, address = int(head[1]), _text.word(head[2])
        elif told := SUM.search(line):
            return Ping(device, address, int(told[1]), int(told[2]))
    return failures.give_up(text)
