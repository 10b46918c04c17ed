"""The catalogue of models that are known beforehand, and which of them lie here."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.conf import settings

from deployments.artifacts import known, sizes
from deployments.artifacts.known import Known, Models
from deployments.models import Artifact, ArtifactPlace
from deployments.services.site_file import SiteFile
from deployments.steps import Text

CARDS = (32, 64)
ENDINGS = ("w8a8", "w4a8", "w8a16", "w4a16", "w4a4", "bf16", "fp16", "fp8", "quantized", "instruct")
_file = SiteFile(known.with_site_rows)


def models() -> Models:
    """Built-in and site rows; read anew when the site's file changes."""
    return _file.content(settings.MODELS_FILE)


def like(name: str) -> Known | None:
    """The row of a model's name: the same, or with the type of a quantization behind it."""
    wanted, rows = known.plain(name), _by_plain_name(models())
    if wanted in rows:
        return rows[wanted]
    best = max((one for one in rows if wanted.startswith(one)), key=len, default="")
    rest = wanted[len(best) :]
    return rows[best] if best and any(rest.startswith(ending) for ending in ENDINGS) else None


@lru_cache(maxsize=4)
def _by_plain_name(found: Models) -> dict[str, Known]:
    return {known.plain(row.name): row for row in found.rows.values()}


@dataclass(frozen=True)
class Line:
    """A row with the models of that name here."""

    row: Known
    here: list[Artifact]

    @property
    def needs(self) -> list[tuple[str, float | None, list[tuple[int, int | None]]]]:
        """(type, GB of weights, [(GB of an NPU, how many of those)])."""
        row = self.row
        return [(kind, row.weights[kind], [(gb, row.least(kind, gb)) for gb in CARDS]) for kind in sizes.KINDS]


def lines(words: str = "", level: str = "") -> list[Line]:
    """Rows that have every word in their id, with what lies here."""
    here = _here()
    wanted = words.lower().split()
    return [
        Line(row, here.get(row.id, []))
        for row in models().rows.values()
        if all(word in row.id.lower() for word in wanted) and (not level or row.support.level == level)
    ]


def _here() -> Mapping[str, list[Artifact]]:
    """{id: models} of those that lie somewhere now."""
    found: dict[str, list[Artifact]] = defaultdict(list)
    rows = Artifact.objects.filter(pk__in=ArtifactPlace.objects.present().values("artifact"))
    for artifact in rows.only("pk", "name", "simulated", "format").order_by("simulated", "-pk"):
        if row := like(artifact.name):
            found[row.id].append(artifact)
    return found


LEVELS: dict[str, Text] = {
    "core": Text("核心支持", "core"),
    "extended": Text("扩展支持", "extended"),
    "experimental": Text("实验性", "experimental"),
    "tutorial": Text("有教程", "has a tutorial"),
    "tool": Text("仅量化工具", "quantization tool only"),
    "none": Text("未列出", "not listed"),
}


PLAIN = ("id", *known.NUMBERS, *known.WHOLE, *known.WORDS, "checked", "tied", "site")


def as_json(words: str = "") -> dict[str, Any]:
    """The catalogue as `manage.py models --json` and REST answer."""
    found = models()
    return {
        "version": found.version,
        "about": found.about.en,
        "sources": list(found.sources),
        "problems": [problem.en for problem in found.problems],
        "models": [_line_json(line) for line in lines(words)],
    }


def _line_json(line: Line) -> dict[str, Any]:
    row = line.row
    return {
        **{name: getattr(row, name) for name in PLAIN},
        "support": row.support._asdict(),
        "quant": [one._asdict() for one in row.quant],
        "notes": list(row.notes),
        "needs": {
            kind: {"weights_gb": None if size is None else round(size, 1), "npus": {str(gb): n for gb, n in counts}}
            for kind, size, counts in line.needs
        },
        "here": [artifact.pk for artifact in line.here],
    }
