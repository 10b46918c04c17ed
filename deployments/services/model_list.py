"""The list of models: filters, pages, and where each lies. A fixed number of queries, however many there are."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from deployments.models import Artifact, ArtifactPlace, Via
from deployments.services import paging
from deployments.services.artifacts import FORMATS
from deployments.services.model_gate import GATES
from deployments.services.paging import FLEETS, PAGE, Page, one_of, text

STATES = ("whole", "incomplete", "gone")
SHOWN_SERVERS = 3


@dataclass(frozen=True)
class Filters(paging.Filters):
    """What is asked for; '' excludes nothing."""

    q: str = ""
    format: str = ""
    state: str = ""
    gate: str = ""
    via: str = ""
    fleet: str = ""
    server: str = ""
    page: int = 1


@dataclass(frozen=True)
class Line:
    """One model as the list shows it. `places` are those where it lies now, `problems` of one of them."""

    artifact: Artifact
    places: Sequence[ArtifactPlace]

    @property
    def state(self) -> str:
        """whole where one copy is, incomplete where none is, gone where there is none."""
        if not self.places:
            return "gone"
        return "whole" if any(place.whole for place in self.places) else "incomplete"

    @property
    def type(self) -> str:
        """That of a quantization, else of most weights; '' where nobody knows."""
        summary = self.artifact.summary
        return str(summary.get("quant_type") or summary.get("dtype") or "")

    @property
    def problems(self) -> list[Any]:
        """Of the copy with the fewest, none where one is whole."""
        return min((place.problems for place in self.places), key=len, default=[])

    @property
    def servers(self) -> list[tuple[str, bool]]:
        """(name, simulated), each once."""
        return list(dict.fromkeys((place.server.name, place.server.simulated) for place in self.places))

    @property
    def shown_servers(self) -> list[tuple[str, bool]]:
        return self.servers[:SHOWN_SERVERS]

    @property
    def more_servers(self) -> int:
        return max(0, len(self.servers) - SHOWN_SERVERS)


def read_filters(given: Mapping[str, str]) -> Filters:
    """Values that are none of their list are left out."""

    return Filters(
        q=text(given, "q", 200), format=one_of(given, "format", FORMATS),
        state=one_of(given, "state", STATES), gate=one_of(given, "gate", tuple(GATES)),
        via=one_of(given, "via", Via.values), fleet=one_of(given, "fleet", FLEETS), server=text(given, "server", 63),
        page=paging.page_number(given),
    )  # fmt: skip


def page(filters: Filters, size: int = PAGE) -> Page[Line]:
    """Newest first."""
    rows = found(filters)
    total = rows.count()
    number = min(filters.page, paging.last(total, size))
    artifacts = list(rows.select_related("parent", "made_by")[(number - 1) * size : number * size])
    return Page(lines(artifacts), total, number)


def lines(artifacts: Sequence[Artifact]) -> list[Line]:
    places: dict[int, list[ArtifactPlace]] = defaultdict(list)
    rows = ArtifactPlace.objects.present().filter(artifact__in=artifacts).select_related("server")
    for place in rows.defer("server__facts", "server__notes").order_by("server__simulated", "server__name", "path"):
        places[place.artifact_id].append(place)
    return [Line(artifact, places[artifact.pk]) for artifact in artifacts]


def found(filters: Filters) -> QuerySet[Artifact]:
    rows = Artifact.objects.all()
    here = ArtifactPlace.objects.present().filter(artifact=OuterRef("pk"))
    if filters.q:
        rows = rows.filter(_words(filters.q))
    if filters.format:
        rows = rows.filter(format=filters.format)
    if filters.via:
        rows = rows.filter(via=filters.via)
    if filters.fleet:
        rows = rows.filter(simulated=filters.fleet == "simulated")
    if filters.server:
        rows = rows.filter(Exists(here.filter(server__name=filters.server)))
    if filters.gate:
        rows = rows.filter(GATES[filters.gate])
    if filters.state == "gone":
        rows = rows.filter(~Exists(here))
    elif filters.state == "whole":
        rows = rows.filter(Exists(here.filter(problems=[])))
    elif filters.state == "incomplete":
        rows = rows.filter(Exists(here)).filter(~Exists(here.filter(problems=[])))
    return rows


def _words(text: str) -> Q:
    """Every word stands in the name, the architecture, the type, a path or the fingerprint's beginning."""
    wanted = Q()
    for word in text.split()[:8]:
        placed = ArtifactPlace.objects.present().filter(artifact=OuterRef("pk"), path__icontains=word)
        wanted &= Q(
            Q(name__icontains=word)
            | Q(summary__architecture__icontains=word)
            | Q(summary__quant_type__icontains=word)
            | Q(fingerprint__startswith=word.lower())
            | Exists(placed)
        )
    return wanted


def as_json(line: Line) -> dict[str, Any]:
    """One model as REST lists it."""
    artifact = line.artifact
    return {
        "id": artifact.pk,
        "name": artifact.name,
        "format": artifact.format,
        "fingerprint": artifact.fingerprint,
        "bytes": artifact.bytes,
        "simulated": artifact.simulated,
        "state": line.state,
        "via": artifact.via,
        "source": artifact.source or None,
        "parent": artifact.parent_id,
        "job": artifact.made_by_id,
        "gate": artifact.gate,
        "digest": artifact.digest or None,
        "servers": [name for name, _simulated in line.servers],
        "places": len(line.places),
        "created_at": artifact.created_at.isoformat(),
        **{name: artifact.summary.get(name) for name in ("architecture", "dtype", "quant_type", "parameters")},
    }
