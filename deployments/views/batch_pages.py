"""Pages of batches."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.errors import Conflict, ConsoleError, Invalid, NotFound
from console.middleware import wants_json
from console.models import User
from deployments import forms, kinds
from deployments.models import Batch
from deployments.services import batch_page, batches, jobs
from deployments.services.selection import FLEETS, Asked
from deployments.views.job_changes import consequence
from deployments.views.lookup import check_may_operate, is_part, refusal_said, user_of

PAGE = 50


@require_GET
def batch_list(request: HttpRequest) -> HttpResponse:
    rows = Batch.objects.select_related("requester")
    before = request.GET.get("before", "")
    if before.isascii() and before.isdigit() and len(before) < 19:
        rows = rows.filter(pk__lt=int(before))
    found = list(rows[: PAGE + 1])
    more, found = len(found) > PAGE, found[:PAGE]
    context = {"lines": batch_page.listed(found), "older": found[-1].pk if more else None, "before": before}
    if wants_json(request):
        return JsonResponse({"html": render_to_string("deployments/_batch_rows.html", context, request)})
    part = is_part(request)
    return render(request, "deployments/_batch_rows.html" if part else "deployments/batch_list.html", context)


@require_GET
def batch_detail(request: HttpRequest, pk: int) -> HttpResponse:
    show = request.GET.get("show", "")
    context = batch_page.shown(find_batch(pk), show if show in batch_page.SHOWS else "")
    if wants_json(request):
        return JsonResponse({"html": render_to_string("deployments/_batch_live.html", context, request)})
    part = is_part(request)
    return render(request, "deployments/_batch_live.html" if part else "deployments/batch_detail.html", context)


@require_http_methods(["GET", "POST"])
def batch_new(request: HttpRequest) -> HttpResponse:
    """The form beside whom and what it would hit; POST starts the batch where these are the servers that were seen."""
    check_may_operate(request)
    given = request.POST if request.method == "POST" else request.GET
    kind = given.get("kind") or kinds.offered()[0]
    module = jobs.find_kind(kind)
    params, problems = forms.read(module, given)
    asked, refusal, plan = batch_page.read_asked(given), None, batches.Plan()
    try:
        plan = batch_page.read_plan(given)
        hit = batch_page.preview(asked, plan)
    except ConsoleError as error:
        hit = batch_page.Preview(refusal=error)
    if request.method == "POST":
        try:
            return redirect("deployments:batch-detail", pk=_start(request, kind, params, problems, asked, plan, hit).pk)
        except ConsoleError as error:
            refusal = error
    elif forms.FULL not in given:
        problems = {}
    context: dict[str, Any] = {
        "kind": kind,
        "kinds": kinds.offered(),
        "given": given,
        "asked": asked,
        "names_text": "\n".join(asked.names),
        "plan_": plan,
        "fleets": FLEETS,
        "hit": hit,
        "fields": forms.fields(module, params, problems, None),
        "refusal": refusal,
        **consequence(module, kind, params),
    }
    if is_part(request):
        return render(request, "deployments/_batch_consequence.html", context)
    context |= batch_page.choices()
    return render(request, "deployments/batch_new.html", context, status=refusal.status if refusal else 200)


def _start(
    request: HttpRequest, kind: str, params: dict[str, Any], problems: dict[str, str], asked: Asked,
    plan: batches.Plan, hit: batch_page.Preview,
) -> Batch:  # fmt: skip
    if hit.refusal:
        raise hit.refusal
    if problems:
        raise Invalid(_("Some parameters do not fit."), _("Mend the marked fields, then start the batch again."))
    if request.POST.get("seen") != hit.digest:
        raise Conflict(
            _("The selection hits other servers than those that were shown."),
            _("Look at the list below, then start the batch again."),
            code="selection_changed",
        )
    ticket = request.POST.get("ticket", "").strip()
    return batches.start(kind, params, asked, plan, by=user_of(request), ticket=ticket)


@require_POST
def batch_pause(request: HttpRequest, pk: int) -> HttpResponse:
    return _changed(request, pk, lambda batch, by: batches.pause(batch, by=by))


@require_POST
def batch_resume(request: HttpRequest, pk: int) -> HttpResponse:
    return _changed(request, pk, lambda batch, by: batches.resume(batch, by=by))


@require_POST
def batch_retry(request: HttpRequest, pk: int) -> HttpResponse:
    return _changed(request, pk, lambda batch, by: batches.retry_failed(batch, by=by))


@require_http_methods(["GET", "POST"])
def batch_stop(request: HttpRequest, pk: int) -> HttpResponse:
    """GET asks whether it is meant; POST stops."""
    check_may_operate(request)
    if request.method == "GET":
        return render(request, "deployments/batch_stop.html", batch_page.shown(find_batch(pk)))
    cancel = bool(request.POST.get("cancel_running"))
    return _changed(request, pk, lambda batch, by: batches.stop(batch, by=by, cancel_running=cancel))


def _changed(request: HttpRequest, pk: int, act: Callable[[Batch, User], Batch]) -> HttpResponse:
    check_may_operate(request)
    with refusal_said(request):
        act(find_batch(pk), user_of(request))
    return redirect("deployments:batch-detail", pk=pk)


def find_batch(pk: int) -> Batch:
    """The batch with its requester. Raises NotFound."""
    batch = Batch.objects.select_related("requester").filter(pk=pk).first() if pk < 2**63 else None
    if batch is None:
        raise NotFound(_("There is no batch #%(id)s.") % {"id": pk}, _("Look for it in the list of batches."))
    return batch
