"""What servers send may be any JSON there is: made such that pages, both databases and JSON itself can hold it."""

from typing import Any

MOST_NUMBER = 10**15
MOST_DEPTH = 8
MOST_ITEMS = 5000  # of one list or object
# No database keeps a lone surrogate, and PostgreSQL no null character.
UNKEPT = {0: "\ufffd", **dict.fromkeys(range(0xD800, 0xE000), "\ufffd")}


def text(value: str, most: int) -> str:
    """At most `most` characters of `value`, those that cannot be kept replaced."""
    return value[:most].translate(UNKEPT)


def number(value: Any) -> float | int | None:
    """`value` where it is a finite number of sensible size; a true number is never made up."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if abs(value) < MOST_NUMBER else None  # NaN is not less than anything


def amount(value: Any) -> float | int | None:
    """A number from 0 on: what is measured and counted is never negative."""
    known = number(value)
    return known if known is not None and known >= 0 else None


def whole(value: Any, most: int) -> int | None:
    """`value` where it is a whole number from 0 to `most`."""
    known = number(value)
    return known if isinstance(known, int) and 0 <= known <= most else None


def plain(value: Any, most_text: int = 2000, depth: int = MOST_DEPTH) -> Any:
    """`value` with texts cut and numbers finite; what lies deeper than `depth` is None, as is what JSON has not."""
    if isinstance(value, str):
        return text(value, most_text)
    if isinstance(value, bool):
        return value
    if depth and isinstance(value, list):
        return [plain(item, most_text, depth - 1) for item in value[:MOST_ITEMS]]
    if depth and isinstance(value, dict):
        pairs = list(value.items())[:MOST_ITEMS]
        return {text(str(key), 100): plain(item, most_text, depth - 1) for key, item in pairs}
    return number(value)
