"""What lists share: filters that an address says, and pages by number. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import urlencode

PAGE = 50
MOST_PAGES = 10_000
FLEETS = ("real", "simulated")

Row = TypeVar("Row")


@dataclass(frozen=True)
class Filters:
    """What is asked for; a list adds its own fields, of which '' excludes nothing.

    PLACE: fields that exclude nothing whatever they hold, mostly where in the list one is, with what they are at its
    beginning.
    """

    PLACE: ClassVar[Mapping[str, Any]] = {"page": 1}

    @property
    def any(self) -> bool:
        return any(value for name, value in vars(self).items() if name not in self.PLACE)

    def address(self, **more: Any) -> str:
        """The query of this list with other values, from its beginning where these say nothing else: '?…' or '?'."""
        values = {**vars(self), **self.PLACE, **more}
        kept = {name: value for name, value in values.items() if value and value != self.PLACE.get(name)}
        return "?" + urlencode(kept)


@dataclass(frozen=True)
class Page(Generic[Row]):
    """Page `number` (from 1) of `total` rows."""

    lines: list[Row]
    total: int
    number: int

    @property
    def last(self) -> int:
        return last(self.total)

    @property
    def older(self) -> int:
        """The number of the next page, 0 for none."""
        return self.number + 1 if self.number < self.last else 0


def last(total: int, size: int = PAGE) -> int:
    """The number of the last page; an empty list has one."""
    return max(1, -(-total // size))


def text(given: Mapping[str, str], name: str, most: int) -> str:
    """'' where it is not given."""
    return given.get(name, "").replace("\0", "").strip()[:most]


def one_of(given: Mapping[str, str], name: str, values: Sequence[str]) -> str:
    """'' for what is none of the values."""
    return value if (value := given.get(name, "")) in values else ""


def page_number(given: Mapping[str, str]) -> int:
    """1 for what is none."""
    number = given.get("page", "")
    page = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else 1
    return max(1, min(page, MOST_PAGES))
