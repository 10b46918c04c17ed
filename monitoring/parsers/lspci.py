"""`lspci -D`: the NPUs the PCI bus knows, whether or not the driver does."""

import re
from dataclasses import dataclass

from monitoring.parsers import failures
from monitoring.parsers._text import lines

COMMAND = ("lspci", "-D")

DEVICE = re.compile(r"\s*((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.*)")
NPU = "Processing accelerators: Huawei"


@dataclass(frozen=True, slots=True)
class Bus:
    """Addresses in the order printed, with the domain where lspci prints it."""

    bus: tuple[str, ...]

    def as_json(self) -> dict[str, list[str]]:
        return {"bus": list(self.bus)}


def parse(text: str) -> Bus | failures.Unreadable:
    """The NPUs among the devices listed, none on a machine without. Raises ParseError where no device is listed."""
    devices = [found for line in lines(text) if (found := DEVICE.match(line))]
    if not devices:
        return failures.give_up(text)
    return Bus(tuple(device[1] for device in devices if device[2].startswith(NPU)))
