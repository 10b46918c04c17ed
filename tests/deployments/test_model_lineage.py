"""The lineage of models: trees, chains, circles, and their drawing."""

from itertools import pairwise

import pytest
from django.utils import translation

from deployments.models import Artifact, Job
from deployments.services import lineage_drawing, model_lineage
from deployments.services.lineage_drawing import EDGE, GAP_X, HEIGHT, WIDTH, draw, fitting
from deployments.services.model_lineage import Further, Node, of, walk
from tests.deployments.model_rows import artifact

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def in_english():
    with translation.override("en"):
        yield


def shape(root):
    return [(node.title, parent.title if parent else None) for node, parent, _depth in walk(root)]


def test_a_model_hangs_on_where_it_came_from_and_its_children_on_it(server):
    made = Job.objects.create(server=server, kind="quantize", not_after="2026-01-01T00:00Z")
    one = artifact("float", via="downloaded", source="https://hub.example/float")
    converted = artifact("bf16", parent=one, via="converted", made_by=made)
    artifact("w8a8", parent=converted, via="quantized", made_by=made, gate={"passed": False})
    for asked in Artifact.objects.all():
        root, left = of(asked)
        assert left == 0 and shape(root) == [
            ("Downloaded", None), ("float", "Downloaded"), ("bf16", "float"), ("w8a8", "bf16"),
            ("Below its budget", "w8a8"),
        ]  # fmt: skip
        assert [node.title for node, _parent, _depth in walk(root) if node.here] == [asked.name]
    edges = [(node.edge, node.job) for node, _parent, _depth in walk(of(one)[0])]
    assert edges[2:4] == [("converted", made.pk), ("quantized", made.pk)]


def test_parents_in_a_circle_end_where_they_began():
    a, b, c = artifact("a"), artifact("b"), artifact("c")
    for one, parent in ((a, c), (b, a), (c, b)):
        Artifact.objects.filter(pk=one.pk).update(parent=parent)
    alone = artifact("alone")
    Artifact.objects.filter(pk=alone.pk).update(parent=alone)
    for asked in Artifact.objects.all():
        names = [node.title for node, _parent, _depth in walk(of(asked)[0]) if node.kind == "model"]
        assert sorted(names) == (["alone"] if asked == alone else ["a", "b", "c"])
        model_lineage.as_json(asked)


def test_a_chain_without_end_and_a_tree_without_end_are_cut(django_assert_max_num_queries):
    chain = [artifact("0")]
    for n in range(1, 150):
        chain.append(artifact(f"{n}", parent=chain[-1]))
    with django_assert_max_num_queries(400):
        root, _left = of(chain[-1])
    assert any(node.here for node, _parent, _depth in walk(root))
    assert sum(1 for _one in walk(root)) <= model_lineage.MOST_NODES + 1
    wide = artifact("wide")
    Artifact.objects.bulk_create(
        Artifact(name=f"w{n}", fingerprint=f"{n:064x}", format="hf", parent=wide) for n in range(300)
    )
    root, left = of(Artifact.objects.get(name="w299"))
    assert left == 101 and any(node.here for node, _parent, _depth in walk(root))
    draw(root)


def test_what_follows_from_a_model_is_added_by_who_knows(monkeypatch):
    one = artifact("m")
    further = Further("deployed", "chat", "deployed", "ok", "/x", None)
    monkeypatch.setattr(model_lineage, "FURTHER", [lambda rows: iter([(row.pk, further) for row in rows])])
    assert ("chat", "m") in shape(of(one)[0])


def tree(*children, key="root", title="t"):
    return Node(key, title, "", "model", children=list(children))


def test_boxes_stand_in_columns_and_do_not_touch():
    root = tree(tree(tree(key="a"), tree(key="b"), key="l"), tree(tree(key="c"), key="r"))
    drawing = draw(root)
    assert {box.node.key: box.x for box in drawing.boxes}["c"] == EDGE + 2 * (WIDTH + GAP_X)
    by_column = {}
    for box in drawing.boxes:
        by_column.setdefault(box.x, []).append(box.y)
    for rows in by_column.values():
        rows.sort()
        assert all(b - a > HEIGHT for a, b in pairwise(rows))
    assert all(box.x + WIDTH <= drawing.width and box.y + HEIGHT <= drawing.height for box in drawing.boxes)
    assert len(drawing.lines) == len(drawing.boxes) - 1


def test_a_thousand_deep_is_no_recursion():
    node = tree(key="0")
    for n in range(1, 3000):
        node = tree(node, key=str(n))
    assert len(draw(node).boxes) == 3000


@pytest.mark.parametrize(
    ("text", "fits"),
    [("short", "short"), ("a" * 30, "a" * 9 + "…"), ("名" * 30, "名" * 4 + "…"), ("a\u202eb\nc", "abc"), ("", "")],
)
def test_texts_are_cut_where_their_box_ends(text, fits):
    assert fitting(text, 10) == fits
    assert lineage_drawing.LETTERS < WIDTH
