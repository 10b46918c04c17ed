"""How the NPUs of a server reach each other, from the topology in its facts. No database, no Redis."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_LINKS = 64  # rows that are drawn


@dataclass(frozen=True)
class Matrix:
    """How each NPU reaches each other one. `cells` are (word, class); `groups` is how many link groups there are."""

    names: list[str]
    rows: list[tuple[str, list[tuple[str, str]]]]
    groups: list[list[str]]


def is_near(link: str) -> bool:
    """A direct link between NPUs; the rest goes over PCIe or the CPUs."""
    return link.upper().startswith(("HCCS", "UB", "SIO"))


def matrix(topology: Any) -> Matrix | None:
    """The link matrix of a server's facts, or None where there is none that can be drawn.

    Takes {"npus": [names], "matrix": [[words]]} and {"links": {name: {name: word}}}; both come from a server,
    so every shape is checked.
    """
    links = _links(topology)
    if not links:
        return None
    names = list(links)[:MAX_LINKS]
    groups = _groups(names, links)
    group_of = {name: place for place, members in enumerate(groups) for name in members}
    rows = []
    for name in names:
        cells = []
        for other in names:
            word = "·" if other == name else links[name].get(other, "—")
            cells.append((word, _link_css(word, group_of.get(name, 0))))
        rows.append((name, cells))
    return Matrix(names, rows, [members for members in groups if len(members) > 1])


def _link_css(word: str, group: int) -> str:
    if word == "·":
        return "self"
    if word in ("—", "NA", "N/A", "DOWN"):
        return "down"
    return f"near group-{group % 4}" if is_near(word) else ""


def _links(topology: Any) -> dict[str, dict[str, str]]:
    if not isinstance(topology, dict):
        return {}
    links = topology.get("links")
    if isinstance(links, dict):
        return {_short(name): _row(row.keys(), row.values()) for name, row in links.items() if isinstance(row, dict)}
    names, cells = topology.get("npus"), topology.get("matrix")
    if not isinstance(names, list) or not isinstance(cells, list):
        return {}
    rows = [row for row in cells if isinstance(row, list)]
    return {_short(name): _row(names, row) for name, row in zip(names, rows, strict=False)}


def _row(names: Iterable[Any], words: Iterable[Any]) -> dict[str, str]:
    return {_short(name): str(word)[:12] for name, word in zip(names, words, strict=False)}


def _short(name: Any) -> str:
    """NPU3 and "NPU 3" are headed 3."""
    text = str(name)[:20]
    return text[3:].strip() if text.upper().startswith("NPU") and len(text) > 3 else text


def _groups(names: Sequence[str], links: Mapping[str, Mapping[str, str]]) -> list[list[str]]:
    """Names joined by near links, each group in order."""
    left, groups = list(names), []
    while left:
        group, edge = [], [left[0]]
        while edge:
            name = edge.pop()
            if name in left:
                left.remove(name)
                group.append(name)
                edge += [other for other in left if is_near(links[name].get(other, ""))]
        groups.append(sorted(group, key=names.index))
    return groups


# Facts in the order shown: key in facts, English label (a gettext key).
