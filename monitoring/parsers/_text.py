"""What every parser does first: bound the text, drop terminal codes, read numbers without trust.

The rule for size: a text above ``MAX_CHARS`` is refused whole, since no tool
prints that much and a cut reading would look like a true one. A line above
``MAX_LINE`` is taken as noise and read as an empty line.
"""

import re

from monitoring.parsers import MAX_CHARS, ParseError

MAX_LINE = 16_384
MAX_WORD = 256
MAX_DIGITS = 15  # larger integers are not exact in the JSON of a browser

UNKNOWN = frozenset({"", "-", "--", "NA", "N/A", "na", "n/a"})

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def lines(text: str) -> list[str]:
    """The lines of a tool's output, without line ends and terminal codes. Raises ParseError."""
    if len(text) > MAX_CHARS:
        raise ParseError("too_long")
    if "\x1b" in text:
        text = ANSI.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    found = text.split("\n")
    if len(text) > MAX_LINE:
        found = [line if len(line) <= MAX_LINE else "" for line in found]
    return found


def word(value: str) -> str:
    """One cell of text: no outer blanks, no control characters, at most MAX_WORD characters."""
    value = value.strip()
    if len(value) <= MAX_WORD and value.isprintable():
        return value
    return "".join(char for char in value[:MAX_WORD] if char.isprintable()).strip()


def known_word(value: str) -> str | None:
    """The same, None where the tool prints that it does not know."""
    value = word(value)
    return None if value in UNKNOWN else value


def integer(token: str) -> int | None:
    """A whole number, a printed fraction rounded; None for everything else."""
    if token.isdecimal() and len(token) <= MAX_DIGITS:
        return int(token)
    exact = decimal(token)
    return None if exact is None else round(exact)


def decimal(token: str) -> float | None:
    """A number as printed (``165.3``, ``-4``); None for everything else, NaN and exponents too."""
    if len(token) > MAX_DIGITS + 2 or not token.removeprefix("-").replace(".", "", 1).isdecimal():
        return None
    return float(token)
