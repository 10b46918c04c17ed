"""What the page of an evaluation shows: its rows, what differs in them, and points of its plot."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from console.errors import NotFound
from deployments.artifacts.garble import SIGNS
from deployments.models import Evaluation, EvaluationAnswer, Job
from deployments.steps import Text

PER_PAGE = 20
WIDTH, HEIGHT, LEFT, TOP = 640, 220, 56, 12  # of the plot, and of what is left for its numbers
MOST_POINTS = 500


@dataclass(frozen=True)
class Part:
    """A piece of an answer; `same` is what both have before the first difference, `other` what comes from there."""

    same: str
    other: str


@dataclass(frozen=True)
class Shown:
    n: int
    data: dict[str, Any]
    parent: Part
    child: Part
    garbled: list[Text]
    both_garbled: list[Text]


def find(pk: int) -> Evaluation:
    """Raises NotFound."""
    rows = Evaluation.objects.select_related("attempt__job__server", "artifact", "parent")
    found = rows.filter(pk=pk).first() if pk < 2**63 else None
    if found is None:
        raise NotFound(_("There is no evaluation #%(id)s.") % {"id": pk}, _("Open it from its model or its job."))
    return found


def of_job(job: Job) -> Evaluation:
    """That of the newest attempt which has one. Raises NotFound."""
    found = Evaluation.objects.filter(attempt__job=job).order_by("-attempt__n").first()
    if found is None:
        raise NotFound(
            _("Job #%(id)s has told of no answers yet.") % {"id": job.pk}, _("Wait until both models have answered.")
        )
    return found


def answers(evaluation: Evaluation, differs: bool, garbled: bool, lang: str) -> QuerySet[EvaluationAnswer]:
    rows = evaluation.answers.all()
    if differs:
        rows = rows.filter(equal=False)
    if garbled:
        rows = rows.filter(garbled=True)
    return rows.filter(lang=lang) if lang else rows


def shown(row: EvaluationAnswer) -> Shown:
    parent, child = str(row.data.get("parent", "")), str(row.data.get("child", ""))
    same = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(parent, child, strict=False))))
    return Shown(
        row.n, row.data, Part(parent[:same], parent[same:]), Part(child[:same], child[same:]),
        *([SIGNS[one] for one in row.data.get(name, ()) if one in SIGNS] for name in ("garbled", "both_garbled")),
    )  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One prompt in the plot: places of the parent's and the child's perplexity, and what stands there."""

    n: int
    id: str
    x: float
    parent_y: float
    child_y: float
    parent: float
    child: float
    agreement_pct: float
    garbled: bool


@dataclass(frozen=True)
class Plot:
    points: list[Point]
    ticks: list[tuple[float, str]]  # (y, perplexity)
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT

    @property
    def bottom(self) -> int:
        return HEIGHT - TOP


def plot(evaluation: Evaluation) -> Plot | None:
    """Perplexity of both models for each prompt; None where the engine gave none."""
    rows = [
        (row.n, row.data) for row in evaluation.answers.all()[:MOST_POINTS]
        if row.data.get("parent_perplexity") and row.data.get("child_perplexity")
    ]  # fmt: skip
    if not rows:
        return None
    values = [data[name] for _n, data in rows for name in ("parent_perplexity", "child_perplexity")]
    least, most = min(values), max(values)
    span = math.log(most / least) or 1.0

    def y(value: float) -> float:
        """Perplexities differ by factors, so they stand at their logarithm."""
        return round(HEIGHT - TOP - math.log(value / least) / span * (HEIGHT - 2 * TOP), 1)

    step = (WIDTH - LEFT - TOP) / max(1, len(rows))
    points = [
        Point(
            n, str(data.get("id", "")), round(LEFT + (place + 0.5) * step, 1), y(data["parent_perplexity"]),
            y(data["child_perplexity"]), data["parent_perplexity"], data["child_perplexity"],
            round(100 * (data.get("same_tokens") or 0) / data["tokens"], 1) if data.get("tokens") else 100.0,
            bool(data.get("garbled")),
        )
        for place, (n, data) in enumerate(rows)
    ]  # fmt: skip
    ticks = [(y(value), f"{value:.4g}") for value in (least, math.sqrt(least) * math.sqrt(most), most)]
    return Plot(points, ticks if most > least else ticks[:1])
