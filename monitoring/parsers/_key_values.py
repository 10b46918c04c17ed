"""Outputs of the shape "key : value" or "key=value", which most queries share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from monitoring.parsers import ParseError, failures
from monitoring.parsers._text import UNKNOWN, decimal, lines

Value = str | int | float | None

MAX_KEY = 128
MAX_VALUE = 8_192  # the Flags line of lscpu is the longest known, about 2,500
MAX_KEYS = 4_096
MAX_BLOCKS = 1_024


@dataclass(frozen=True, slots=True)
class Values:
    """What one query printed, keys and units as the tool spells them; None where it prints NA or "-".

    ``more`` holds the further blocks of an output that prints the same keys
    again, for a card's second chip for example.
    """

    values: dict[str, Value]
    more: tuple[dict[str, Value], ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {"values": self.values, **({"more": list(self.more)} if self.more else {})}


def reader(*needed: str, separator: str = ":") -> Callable[[str], Values | failures.Unreadable]:
    """The ``parse`` of an output with nothing but keys and values, at least one of the ``needed`` among them."""

    def parse(text: str) -> Values | failures.Unreadable:
        """Keys and values as printed. Raises ParseError."""
        return read(text, *needed, separator=separator)

    return parse


def read(text: str, *needed: str, separator: str = ":") -> Values | failures.Unreadable:
    """The keys and values of an output that has at least one of the ``needed`` keys, told by how they begin.

    Values after "=" stay as written, without quotes; after ":" numbers become
    numbers. Raises ParseError.
    """
    blocks: list[dict[str, Value]] = [{}]
    for line in lines(text):
        key, value = pair(line, separator)
        if not key:
            continue
        if key in blocks[-1]:
            blocks.append({})
        if len(blocks) > MAX_BLOCKS or len(blocks[-1]) >= MAX_KEYS:
            raise ParseError("not_understood")
        blocks[-1][key] = typed(key, value) if separator == ":" else unquoted(value)
    if not any(key.lower().startswith(start.lower()) for start in needed for key in blocks[0]):
        return failures.give_up(text)
    return Values(blocks[0], tuple(blocks[1:]))


def pair(line: str, separator: str = ":") -> tuple[str, str]:
    """Key and value of one line, both empty where it has none: rulers, titles, prompts, dots where lines were cut."""
    key, found, value = line.partition(separator)
    key, value = key.strip(), value.strip()
    if key.startswith("[device "):  # hccn_tool on some drivers: "[device 0]link up count : 2"
        key = key.partition("]")[2].strip()
    is_key = key[:1].isalpha() and len(key) <= MAX_KEY and "@" not in key and key.isprintable()
    return (key, value[:MAX_VALUE]) if found and value and is_key else ("", "")


def typed(key: str, value: str) -> Value:
    """A number where one is printed, None where the tool does not know, else the text; versions stay text."""
    if value in UNKNOWN:
        return None
    if "version" in key.lower():
        return printable(value)
    if value.isdecimal():
        digits = value.lstrip("0")
        return int(digits or "0") if len(digits) <= 15 else value
    number = decimal(value)
    if number is None:
        return printable(value)
    return number if "." in value else int(number)


def unquoted(value: str) -> str:
    """A value of a key=value file."""
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return printable(value)


def printable(value: str) -> str:
    """Text without control characters."""
    return value if value.isprintable() else "".join(char for char in value if char.isprintable())
