"""Places for the boxes and lines of a lineage graph: columns by depth, rows by leaves. Pure; pixels of its SVG."""

import unicodedata
from dataclasses import dataclass

from deployments.services.model_lineage import Node, walk

WIDTH, HEIGHT, GAP_X, GAP_Y, EDGE = 196, 58, 128, 18, 8
LETTERS = 22  # narrow ones that fit into a box; a Chinese one takes two
EDGE_LETTERS = 18


@dataclass(frozen=True)
class Box:
    """`title` and `note` as they fit; the whole is in `node`."""

    node: Node
    x: int
    y: int
    title: str
    note: str

    @property
    def text_x(self) -> int:
        return self.x + 12

    @property
    def title_y(self) -> int:
        return self.y + 24

    @property
    def note_y(self) -> int:
        return self.y + 43

    @property
    def mark_x(self) -> int:
        return self.x + WIDTH - 22


@dataclass(frozen=True)
class Line:
    """From a box to the next: a curve, and the words on it."""

    node: Node
    path: str
    x: int
    y: int
    words: str


@dataclass(frozen=True)
class Drawing:
    boxes: list[Box]
    lines: list[Line]
    width: int
    height: int
    box_width: int = WIDTH
    box_height: int = HEIGHT


def draw(root: Node) -> Drawing:
    order = list(walk(root))
    rows = _rows([node for node, _parent, _depth in order])
    boxes, lines = {}, []
    for node, parent, depth in order:
        x, y = EDGE + depth * (WIDTH + GAP_X), EDGE + round(rows[node.key] * (HEIGHT + GAP_Y))
        boxes[node.key] = Box(node, x, y, fitting(node.title, LETTERS - 2), fitting(node.note, LETTERS + 3))
        if parent:
            lines.append(_line(boxes[parent.key], boxes[node.key]))
    width = max(box.x for box in boxes.values()) + WIDTH + EDGE
    height = max(box.y for box in boxes.values()) + HEIGHT + EDGE
    return Drawing(list(boxes.values()), lines, width, height)


def _rows(nodes: list[Node]) -> dict[str, float]:
    """Each leaf gets a row of its own, in order; a parent stands in the middle of its children."""
    rows: dict[str, float] = {}
    free = 0
    for node in nodes:
        if not node.children:
            rows[node.key] = free
            free += 1
    for node in reversed(nodes):  # children come behind their parents
        if node.children:
            rows[node.key] = (rows[node.children[0].key] + rows[node.children[-1].key]) / 2
    return rows


def _line(a: Box, b: Box) -> Line:
    x0, y0, x1, y1 = a.x + WIDTH, a.y + HEIGHT // 2, b.x, b.y + HEIGHT // 2
    middle = (x0 + x1) // 2
    path = f"M{x0} {y0}C{middle} {y0} {middle} {y1} {x1} {y1}"
    words = b.node.edge + (f" #{b.node.job}" if b.node.job else "")
    return Line(b.node, path, x1 - 6, y1 - 7, fitting(words, EDGE_LETTERS))


def fitting(text: str, letters: int) -> str:
    """The beginning of a text that fits, with an ellipsis; what turns the direction of writing is left out."""
    plain = "".join(one for one in text if unicodedata.category(one) not in ("Cf", "Cc"))
    width, kept = 0, list[str]()
    for one in plain:
        width += 2 if unicodedata.east_asian_width(one) in "WF" else 1
        if width > letters:
            return "".join(kept[: max(0, len(kept) - 1)]) + "…"
        kept.append(one)
    return plain
