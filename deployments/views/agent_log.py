"""The log of a server's agent: its page, ranges of raw records for the viewer, a piece as plain text."""

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_GET

from console.templatetags.frame import texts_for_scripts
from deployments import page_texts
from deployments.asked_logs import range_of
from deployments.log_answers import whole_as_text
from deployments.services import agent_logs, engine_logs, log_keeping
from deployments.views import log_config
from deployments.views.lookup import find_server


@require_GET
def agent_log(request: HttpRequest, name: str) -> HttpResponse:
    """The piece that `piece` names, else the newest, which is followed."""
    server = find_server(name)
    pieces = agent_logs.pieces(server)
    piece = agent_logs.find(server, request.GET.get("piece", ""))
    config = {
        "topic": f"agent:{server.pk}",
        "piece": piece.pk if piece else None,
        "newest": piece is None or piece.pk == pieces[0].pk,
        "ended": bool(piece and piece.done),
        "lines": reverse("deployments:agent-lines", args=[name]),
        **log_config.services(reverse("deployments:agent-log", args=[name]) + "/"),
        "started": int(piece.started_at.timestamp() * 1000) if piece and piece.started_at else None,
    }
    context = {
        "log_gone": log_keeping.said(piece),
        "server": server, "piece": piece, "pieces": pieces, "raw": reverse("deployments:agent-raw", args=[name]),
        "log_complete": bool(piece and piece.done), "log": config,
        "texts": texts_for_scripts(page_texts.JOB + page_texts.ENGINE_LOG),
    }  # fmt: skip
    return render(request, "deployments/agent_log.html", context)


@require_GET
@gzip_page
def agent_lines(request: HttpRequest, name: str) -> JsonResponse:
    """Raw records of a piece: after=, before= or neither (the tail), at most n= of them."""
    piece = agent_logs.find(find_server(name), request.GET.get("attempt", ""))
    return JsonResponse(engine_logs.lines(piece, *range_of(request)))


@require_GET
def agent_raw(request: HttpRequest, name: str) -> HttpResponseBase:
    """A whole piece as plain text; ?download=1 as a file."""
    piece = agent_logs.find(find_server(name), request.GET.get("piece", ""))
    file_name = f"{name}-agent-{piece.n if piece else 0}.log"
    return whole_as_text(piece, file_name, download=bool(request.GET.get("download")))
