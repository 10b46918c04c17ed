"""`upgrade-tool --version`: the firmware of each component of each device."""

import re
from dataclasses import asdict, dataclass
from typing import Any

from monitoring.parsers import failures
from monitoring.parsers._text import integer, lines

COMMAND = (
    "/usr/local/Ascend/driver/tools/upgrade-tool",
    "--device_index",
    "-1",
    "--component",
    "-1",
    "--version",
)

ROW = re.compile(r'"device_id":(\d{1,9}), "component":(\w{1,64}), "version":([\w.]{1,64})\}')


@dataclass(frozen=True, slots=True)
class Component:
    """One component (nve, uefi, imu, imp) of one device."""

    device_id: int | None
    component: str
    version: str


@dataclass(frozen=True, slots=True)
class Firmware:
    """All components in the order printed."""

    components: tuple[Component, ...]

    def as_json(self) -> dict[str, Any]:
        return {"components": [asdict(component) for component in self.components]}


def parse(text: str) -> Firmware | failures.Unreadable:
    """One entry per device and component. Raises ParseError."""
    found = [row for line in lines(text) for row in ROW.findall(line)]
    if not found:
        return failures.give_up(text)
    return Firmware(tuple(Component(integer(device), component, version) for device, component, version in found))
