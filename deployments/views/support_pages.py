"""Support bundles: the list, one with its live progress, the question before one is made, the download; and what
servers send."""

import json
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.errors import ConsoleError
from console.middleware import wants_json
from deployments.agent.support.send import PIECE
from deployments.kinds.support_bundle import SOURCES
from deployments.models import PartState, SupportBundle
from deployments.services import signed_calls, support_archive, support_bundles, support_subjects
from deployments.services.support_bundles import Row, Subject
from deployments.views.lookup import check_may_operate, is_part, user_of

PER_PAGE = 50
HEAD = 4096  # bytes of the line before a piece


# ---------- from servers ----------


@csrf_exempt
@login_not_required
@require_POST
def support_receive(request: HttpRequest) -> HttpResponseBase:
    """A piece of a part: one line of JSON {"body", "mac"}, the bytes behind it. Answers {"here": bytes}."""
    sent = request.read(HEAD + PIECE)
    line, _end, piece = sent.partition(b"\n")
    try:
        head = json.loads(line)
        return JsonResponse({"here": signed_calls.support(str(head["body"]), str(head["mac"]), piece)})
    except ConsoleError as error:
        words = f"{error.what} {error.do}\n"
        return HttpResponse(words, content_type="text/plain; charset=utf-8", status=error.status)
    except (ValueError, TypeError, KeyError, RecursionError):
        return HttpResponse("", content_type="text/plain", status=400)


# ---------- pages ----------


@require_GET
def support_list(request: HttpRequest) -> HttpResponse:
    find = request.GET.get("q", "")
    page = Paginator(support_bundles.listed(find), PER_PAGE).get_page(request.GET.get("page"))
    found = support_bundles.rows_of_many(page.object_list)
    rows = [(bundle, summary(found[bundle.pk])) for bundle in page.object_list]
    context = {"rows": rows, "page": page, "find": find, "taken": support_bundles.taken()}
    return render(request, "deployments/support_list.html", context)


@require_http_methods(["GET", "POST"])
def support_new(request: HttpRequest) -> HttpResponse:
    """What would be collected from where, asked for by ?job=, ?server=, ?deployment=, ?replica= or ?alert=; POST makes
    it."""
    check_may_operate(request)
    given = request.POST if request.method == "POST" else request.GET
    refusal, subject = None, None
    try:
        subject = _subject(given)
        if request.method == "POST":
            bundle = support_bundles.make(
                subject, by=user_of(request), case_number=given.get("case_number", ""), note=given.get("note", ""),
                hosts=given.get("hosts") == "on",
            )  # fmt: skip
            return redirect("deployments:support-detail", pk=bundle.pk)
    except ConsoleError as error:
        refusal = error
    context = {"given": given, "subject": subject, "refusal": refusal, "sources": SOURCES.values(),
               "named": {name: given.get(name, "") for name in NAMED}}  # fmt: skip
    return render(request, "deployments/support_new.html", context, status=refusal.status if refusal else 200)


NAMED = ("job", "server", "deployment", "replica", "alert")


def _subject(given: Any) -> Subject:
    """Raises ConsoleError."""
    number = {name: _number(given.get(name, "")) for name in ("job", "replica", "alert")}
    return support_subjects.read(
        number["job"], given.get("server", ""), given.get("deployment", ""), number["replica"], number["alert"]
    )


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


@require_GET
def support_detail(request: HttpRequest, pk: int) -> HttpResponse:
    bundle = support_bundles.find(pk)
    context = detail(bundle)
    if wants_json(request):
        return JsonResponse({"html": render_to_string("deployments/_support_live.html", context, request)})
    template = "deployments/_support_live.html" if is_part(request) else "deployments/support_detail.html"
    return render(request, template, context)


def detail(bundle: SupportBundle, refusal: ConsoleError | None = None) -> dict[str, Any]:
    found = support_bundles.rows(bundle)
    return {
        "bundle": bundle, "servers": by_server(found), "refusal": refusal, **summary(found),
        "file_name": support_archive.file_name(bundle),
    }  # fmt: skip


def by_server(found: list[Row]) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in found:
        groups.setdefault(row.part.server_name, []).append(row)
    return list(groups.items())


def summary(found: list[Row]) -> dict[str, Any]:
    """How far it is."""
    return {
        "ready": support_bundles.is_ready(found),
        "arrived": sum(row.state == PartState.ARRIVED for row in found),
        "missing": sum(row.state == PartState.MISSING for row in found),
        "parts": len(found),
        "names": sorted({row.part.server_name for row in found} - {""}),
        "bytes": sum(row.part.bytes for row in found if row.state == PartState.ARRIVED),
    }


@require_GET
def support_download(request: HttpRequest, pk: int) -> HttpResponseBase:
    bundle = support_bundles.find(pk)
    response = StreamingHttpResponse(
        support_archive.download(bundle, by=user_of(request)), content_type="application/zip"
    )
    response.headers["Content-Disposition"] = f'attachment; filename="{support_archive.file_name(bundle)}"'
    response.headers["Cache-Control"] = "no-store"
    return response


@require_POST
def support_describe(request: HttpRequest, pk: int) -> HttpResponse:
    """Keep a case number and a note with it."""
    bundle = support_bundles.find(pk)
    try:
        given = request.POST
        support_bundles.describe(bundle, given.get("case_number", ""), given.get("note", ""), by=user_of(request))
    except ConsoleError as error:
        context = detail(support_bundles.find(pk), error)
        return render(request, "deployments/support_detail.html", context, status=error.status)
    return redirect("deployments:support-detail", pk=pk)


@require_POST
def support_delete(request: HttpRequest, pk: int) -> HttpResponse:
    support_bundles.delete(support_bundles.find(pk), by=user_of(request))
    return redirect("deployments:support-list")
