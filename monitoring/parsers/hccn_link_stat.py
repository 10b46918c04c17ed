"""`hccn_tool -link_stat`: how often a port went up and down, and when."""

import re
from dataclasses import asdict, dataclass
from typing import Any

from monitoring.parsers import failures
from monitoring.parsers._key_values import pair
from monitoring.parsers._text import integer, known_word, lines

COMMAND = ("hccn_tool", "-i", "{device_index}", "-link_stat", "-g")

TIME = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d \d{4}")
STATE = re.compile(r"LINK[ _](UP|DOWN)\b")


@dataclass(frozen=True, slots=True)
class Change:
    """One change; ``time`` as the device's clock prints it, which knows no zone."""

    time: str
    state: str  # UP or DOWN


@dataclass(frozen=True, slots=True)
class LinkHistory:
    """The changes in the order printed, newest first."""

    current_time: str | None
    link_up_count: int | None
    records: tuple[Change, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"records": [asdict(change) for change in self.records]}


def parse(text: str) -> LinkHistory | failures.Unreadable:
    """Counts and changes of one port, from a list or a table. Raises ParseError."""
    values: dict[str, str] = {}
    changes: list[Change] = []
    for line in lines(text):
        time, state = TIME.search(line), STATE.search(line)
        if time and state:
            changes.append(Change(time[0], state[1]))
        else:
            key, value = pair(line)
            values[key] = value
    if "link up count" not in values and not changes:
        return failures.give_up(text)
    return LinkHistory(
        known_word(values.get("current time", "")), integer(values.get("link up count", "")), tuple(changes)
    )
