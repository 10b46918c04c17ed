"""Pages of models: the list, one model with its lineage, the catalogue of those that are known."""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.decorators.http import require_GET

from console.middleware import wants_json
from deployments import kinds
from deployments.models import Artifact, Server, Via
from deployments.services import (
    deployment_list,
    lineage_drawing,
    model_catalogue,
    model_changes,
    model_gate,
    model_lineage,
    model_list,
    model_page,
)
from deployments.services.artifacts import FORMATS
from deployments.views.lookup import is_part, only_server, user_of

MOST_SERVERS = 2000


def live(request: HttpRequest, page: str, part: str, context: dict[str, Any]) -> HttpResponse:
    """The page, or its live part alone where a script asks for that."""
    if wants_json(request):
        return JsonResponse({"html": render_to_string(part, context, request)})
    return render(request, part if is_part(request) else page, context)


@require_GET
def model_list_page(request: HttpRequest) -> HttpResponse:
    filters = model_list.read_filters(request.GET)
    page = model_list.page(filters)
    context = {
        "filters": filters,
        "page": page,
        "lines": [(line, model_gate.state(line.artifact)) for line in page.lines],
        "newer": filters.address(page=page.number - 1) if page.number > 1 else "",
        "older": filters.address(page=page.older) if page.older else "",
        "formats": FORMATS,
        "states": model_list.STATES,
        "gates": tuple(model_gate.GATES),
        "vias": Via.choices,
        "ways_in": model_page.ways_in(),
        "none_at_all": page.total == 0 and not filters.any,
    }
    if not is_part(request) and not wants_json(request):
        context |= scan_form(request)
    return live(request, "deployments/model_list.html", "deployments/_model_rows.html", context)


def scan_form(request: HttpRequest) -> dict[str, Any]:
    """What the form reads that looks for models; nothing for who may only look."""
    if not user_of(request).may("operator"):
        return {}
    rows = Server.objects.present().order_by("simulated", "name").only("name", "simulated")[:MOST_SERVERS]
    return {"servers": rows, "only_server": only_server(), "default_root": model_changes.root_of(None)}


@require_GET
def model_detail(request: HttpRequest, pk: int) -> HttpResponse:
    artifact = model_changes.find(pk)
    return live(request, "deployments/model_detail.html", "deployments/_model_live.html", shown(request, artifact))


def shown(request: HttpRequest, artifact: Artifact) -> dict[str, Any]:
    """What the templates of one model read."""
    there, more = model_page.places(artifact)
    present = [place for place in there if place.gone_at is None]
    root, left = model_lineage.of(artifact)
    line = model_list.Line(artifact, present)
    gate = artifact.gate if isinstance(artifact.gate, dict) else {}
    return {
        "artifact": artifact,
        "line": line,
        "gate_state": model_gate.state(artifact),
        "gate_job": gate.get("job") if type(gate.get("job")) is int else None,
        "copies": [(place, [(one[1], model_page.remedy(one)) for one in place.problems]) for place in there],
        "copies_left": more,
        "numbers": model_page.numbers(artifact),
        "known": model_page.known_row(artifact),
        "jobs": model_page.jobs_of(artifact, there),
        "actions": model_page.actions(artifact, present) if user_of(request).may("operator") else [],
        "deployments": deployment_list.of_model(artifact),
        "drawing": lineage_drawing.draw(root),
        "lineage": [(node, parent, depth) for node, parent, depth in model_lineage.walk(root)],
        "lineage_left": left,
        "rest": request.build_absolute_uri(f"/api/v1/models/{artifact.pk}"),
    }


@require_GET
def model_catalogue_page(request: HttpRequest) -> HttpResponse:
    words, level = request.GET.get("q", "").strip()[:100], request.GET.get("level", "")
    level = level if level in model_catalogue.LEVELS else ""
    found = model_catalogue.models()
    download = model_page.address("deployments:model-download")
    context = {
        "lines": model_catalogue.lines(words, level),
        "total": len(found.rows),
        "found": found,
        "q": words,
        "level": level,
        "levels": model_catalogue.LEVELS,
        "download": download,
        "download_form": not download and "download" in kinds.offered(),
        "cards": model_catalogue.CARDS,
    }
    return render(request, "deployments/model_catalogue.html", context)
