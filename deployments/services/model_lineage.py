"""Where a model comes from and what became of it: a graph of models, each edge the job that made the next.

Parents are a server's word, so they may go in a circle or on for ever: each model is there once, and there is a limit.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.urls import reverse
from django.utils.translation import gettext as _

from deployments.models import Artifact, Job, Via
from deployments.services import model_gate
from deployments.templatetags.artifacts import format_word

MOST_UP, MOST_NODES = 60, 200


class Further(NamedTuple):
    """What follows from a model and is none itself: its evaluation, a deployment."""

    kind: str  # evaluated | deployed
    title: str
    note: str
    state: str
    url: str
    job: Job | None


@dataclass
class Node:
    """A model in the graph, or the place it came from (no artifact), or what followed. Shape: a tree by `children`."""

    key: str
    title: str
    note: str
    kind: str  # source | model | evaluated | deployed
    edge: str = ""  # how it came about from its parent
    job: int | None = None
    url: str = ""
    state: str = ""
    here: bool = False
    simulated: bool = False
    artifact: Artifact | None = None
    children: list["Node"] = field(default_factory=list)


Finder = Callable[[list[Artifact]], Iterator[tuple[int, Further]]]
FURTHER: list[Finder] = []  # deployments add one: (id of the model, what follows)


def of(artifact: Artifact) -> tuple[Node, int]:
    """(the root, how many models were left out)."""
    rows, left = family(artifact)
    further: dict[int, list[Further]] = defaultdict(list)
    for finder in FURTHER:
        for pk, one in finder(rows):
            further[pk].append(one)
    nodes = {row.pk: _node(row, artifact) for row in rows}
    for row in rows:
        nodes[row.pk].children += [_evaluated(row)] if row.gate else []
        nodes[row.pk].children += [_further(row, n, one) for n, one in enumerate(further[row.pk])]
        if row is not rows[0] and row.parent_id in nodes:
            nodes[row.parent_id].children.append(nodes[row.pk])
    return _with_source(rows[0], nodes[rows[0].pk]), left


def family(artifact: Artifact) -> tuple[list[Artifact], int]:
    """(models of one family, each behind its parent and the eldest first; how many more there are)."""
    path = _upwards(artifact)
    rows, seen, left = [path[-1]], {path[-1].pk}, 0
    level = [path[-1].pk]
    wanted = {one.pk for one in path}
    while level:
        found = Artifact.objects.filter(parent__in=level).exclude(pk__in=seen).select_related("made_by__server")
        # Those on the way to the model that is asked for come first, so that no limit cuts them off.
        children = sorted(found.order_by("pk")[: MOST_NODES * 2], key=lambda one: (one.pk not in wanted, one.pk))
        kept = children[: max(MOST_NODES - len(rows), sum(one.pk in wanted for one in children))]
        left += len(children) - len(kept)
        rows += kept
        seen |= {one.pk for one in kept}
        level = [one.pk for one in kept]
    return rows, left


def _upwards(artifact: Artifact) -> list[Artifact]:
    """The model, its parent, and so on; a circle ends where it began."""
    path, seen = [artifact], {artifact.pk}
    while (parent := path[-1].parent) and parent.pk not in seen and len(path) < MOST_UP:
        path.append(Artifact.objects.select_related("parent", "made_by__server").get(pk=parent.pk))
        seen.add(parent.pk)
    return path


def _node(row: Artifact, asked: Artifact) -> Node:
    facts = (row.summary.get("quant_type") or row.summary.get("dtype") or "", format_word(row.format))
    return Node(
        key=f"m{row.pk}", title=row.name, note=" · ".join(word for word in facts if word), kind="model",
        edge=edge_word(row), job=row.made_by_id, url=reverse("deployments:model-detail", args=[row.pk]),
        state=model_gate.state(row), here=row.pk == asked.pk, simulated=row.simulated, artifact=row,
    )  # fmt: skip


def edge_word(row: Artifact) -> str:
    """How a model came about, in the reader's language."""
    if row.via == Via.FOUND and row.parent_id:
        return str(Via.QUANTIZED.label) if row.format == "quantized" else _("made of it")
    return str(Via(row.via).label) if row.via in Via.values else row.via


def _with_source(row: Artifact, node: Node) -> Node:
    """The eldest hangs on where it came from."""
    note = row.source or (row.made_by.server.name if row.made_by else _("on a server"))
    title = str(Via(row.via).label) if row.via in Via.values else row.via
    return Node(key="source", title=title[:1].upper() + title[1:], note=note, kind="source", children=[node])


def _evaluated(row: Artifact) -> Node:
    gate = row.gate if isinstance(row.gate, dict) else {}
    state = model_gate.state(row)
    title = _("Promotable") if state == "promotable" else _("Below its budget")
    number = gate.get("job") if type(gate.get("job")) is int else None
    url = _page("evaluation-detail", gate.get("evaluation")) or _page("job-detail", number)
    return Node(f"e{row.pk}", title, _("evaluated"), "evaluated", edge=_("evaluated"), job=number, url=url, state=state)


def _page(name: str, pk: Any) -> str:
    """The address of a row's page; '' for what is no row's number."""
    return reverse(f"deployments:{name}", args=[pk]) if type(pk) is int and pk >= 0 else ""


def _further(row: Artifact, n: int, one: Further) -> Node:
    job = one.job.pk if one.job else None
    return Node(f"f{row.pk}-{n}", one.title, one.note, one.kind, edge=one.note, job=job, url=one.url, state=one.state)


def walk(root: Node) -> Iterator[tuple[Node, Node | None, int]]:
    """(node, parent, depth), parents first, without recursion: chains may be long."""
    waiting: list[tuple[Node, Node | None, int]] = [(root, None, 0)]
    while waiting:
        node, parent, depth = waiting.pop()
        yield node, parent, depth
        waiting += [(child, node, depth + 1) for child in reversed(node.children)]


def as_json(artifact: Artifact) -> dict[str, Any]:
    """{"nodes": […], "edges": [{from, to, how, job}], "left_out"}."""
    root, left = of(artifact)
    nodes, edges = [], []
    for node, parent, _depth in walk(root):
        nodes.append(_node_json(node))
        if parent:
            edges.append({"from": parent.key, "to": node.key, "how": node.edge, "job": node.job})
    return {"nodes": nodes, "edges": edges, "left_out": left}


def _node_json(node: Node) -> dict[str, Any]:
    return {
        "key": node.key, "kind": node.kind, "title": node.title, "note": node.note, "state": node.state or None,
        "model": node.artifact.pk if node.artifact else None, "simulated": node.simulated, "asked": node.here,
    }  # fmt: skip
