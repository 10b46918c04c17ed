"""The log of a replica's engine: its page, ranges of raw records for the viewer, a piece as plain text."""

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_GET

from console.templatetags.frame import texts_for_scripts
from deployments import page_texts
from deployments.asked_logs import range_of
from deployments.log_answers import whole_as_text
from deployments.models import EngineLog, Replica
from deployments.services import engine_logs, log_keeping
from deployments.views import log_config
from deployments.views.lookup import find_replica


@require_GET
def replica_log(request: HttpRequest, name: str, n: int) -> HttpResponse:
    """The piece that `piece` names, else the newest, which is followed."""
    replica = find_replica(name, n)
    piece = engine_logs.find(replica, request.GET.get("piece", ""))
    pieces = engine_logs.pieces(replica)
    context = {
        "log_gone": log_keeping.said(piece),
        "deployment": replica.deployment, "replica": replica, "piece": piece, "pieces": pieces,
        "raw": reverse("deployments:replica-raw", args=[name, n]), "log_complete": bool(piece and piece.done),
        "log": _config(replica, piece, pieces), "texts": texts_for_scripts(page_texts.JOB + page_texts.ENGINE_LOG),
    }  # fmt: skip
    return render(request, "deployments/replica_log.html", context)


def _config(replica: Replica, piece: EngineLog | None, pieces: list[EngineLog]) -> dict[str, Any]:
    """What static/js/topics/replica_log.js starts from."""
    name = replica.deployment.name
    return {
        "replica": replica.pk,
        "piece": piece.pk if piece else None,
        "newest": piece is None or piece.pk == pieces[0].pk,
        "ended": bool(piece and piece.done),
        "lines": reverse("deployments:replica-lines", args=[name, replica.n]),
        "page": reverse("deployments:replica-log", args=[name, replica.n]),
        **log_config.services(f"{reverse('deployments:deployment-detail', args=[name])}replicas/{replica.n}/"),
        "started": int(piece.started_at.timestamp() * 1000) if piece and piece.started_at else None,
    }


@require_GET
@gzip_page
def replica_lines(request: HttpRequest, name: str, n: int) -> JsonResponse:
    """Raw records of a piece: after=, before= or neither (the tail), at most n= of them."""
    piece = engine_logs.find(find_replica(name, n), request.GET.get("attempt", ""))
    return JsonResponse(engine_logs.lines(piece, *range_of(request)))


@require_GET
def replica_raw(request: HttpRequest, name: str, n: int) -> HttpResponseBase:
    """A whole piece as plain text; ?download=1 as a file."""
    piece = engine_logs.find(find_replica(name, n), request.GET.get("piece", ""))
    file_name = f"{name}-replica-{n}-start-{piece.n if piece else 0}.log"
    return whole_as_text(piece, file_name, download=bool(request.GET.get("download")))
