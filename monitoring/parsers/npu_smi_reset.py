"""`npu-smi set -t reset`: what the tool says while it resets a card."""

from dataclasses import dataclass
from typing import Any

from monitoring.parsers import failures
from monitoring.parsers._key_values import pair
from monitoring.parsers._text import lines, word

COMMAND = ("npu-smi", "set", "-t", "reset", "-i", "{npu_id}", "-m", "1")


@dataclass(frozen=True, slots=True)
class Reset:
    """The last status, and all messages in the order printed."""

    status: str | None
    messages: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {"status": self.status, "messages": list(self.messages)}


def parse(text: str) -> Reset | failures.Unreadable:
    """Status and messages; ``status`` is None where the tool was cut off before it. Raises ParseError."""
    found = [pair(line) for line in lines(text)]
    messages = tuple(word(value) for key, value in found if key == "Message")
    statuses = [word(value) for key, value in found if key == "Status"]
    if not messages and not statuses:
        return failures.give_up(text)
    return Reset(statuses[-1] if statuses else None, messages)
