"""Pages of campaigns: list, form, one campaign with its plan, the decision and the board."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.errors import Conflict, ConsoleError
from console.middleware import wants_json
from console.models import User
from deployments.models import Campaign
from deployments.services import (
    batch_page,
    batches,
    campaign_board,
    campaign_form,
    campaign_held,
    campaigns,
    wheel_bundles,
)
from deployments.services.campaign_plan import WORDS
from deployments.services.campaign_rings import BY, Order
from deployments.services.selection import FLEETS
from deployments.views.lookup import check_may_operate, is_part, refusal_said, user_of

PAGE = 50
MOST_ROWS = 300


@require_GET
def campaign_list(request: HttpRequest) -> HttpResponse:
    rows = Campaign.objects.select_related("requester", "decided_by", "batch")
    before = request.GET.get("before", "")
    if before.isascii() and before.isdigit() and len(before) < 19:
        rows = rows.filter(pk__lt=int(before))
    found = list(rows[: PAGE + 1])
    more, found = len(found) > PAGE, found[:PAGE]
    lines = [(row, campaign_board.shown_state(row)) for row in found]
    context = {"lines": lines, "older": found[-1].pk if more else None, "before": before}
    return _live(request, "deployments/campaign_list.html", "deployments/_campaign_rows.html", context)


def _live(request: HttpRequest, page: str, part: str, context: dict[str, Any]) -> HttpResponse:
    """The page, or its live part alone where a script asks for that."""
    if wants_json(request):
        return JsonResponse({"html": render_to_string(part, context, request)})
    return render(request, part if is_part(request) else page, context)


@require_GET
def campaign_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Before it begins: what it will do, and the decision. After: the board, and what was approved."""
    campaign = campaigns.find(pk)
    return _live(
        request, "deployments/campaign_detail.html", "deployments/_campaign_live.html",
        shown(campaign, user_of(request), request.GET.get("show", ""), request.GET.get("does", "")),
    )  # fmt: skip


def shown(campaign: Campaign, by: User, show: str = "", does: str = "") -> dict[str, Any]:
    """What the templates of a campaign read."""
    rows = campaign_board.table(campaign) if campaign.batch is None else []
    wanted = [row for row in rows if does not in WORDS or campaign_board.does(row) == does]
    held = campaign_held.held(campaign) if campaign.batch else []
    choices = {name: value for name, value in campaign.params.items() if name != "stack"}
    context = {
        "campaign": campaign,
        "batch": campaign.batch,
        "state": campaign_board.shown_state(campaign),
        "order": Order.of(campaign.order),
        "choices": campaign_form.said(choices),
        "choices_query": f"?{urlencode(choices)}" if choices else "",  # of the page with the exact commands
        "groups": campaign_board.groups(campaign),
        "rows": [(row, campaign_board.does(row), _ring(campaign, row.ring)) for row in wanted[:MOST_ROWS]],
        "word_counts": campaign_board.word_counts(rows),
        "rows_left": max(0, len(wanted) - MOST_ROWS),
        "does": does if does in WORDS else "",
        "total": len(rows),
        "held": held,
        "held_seen": campaign_held.held_digest(held) if held else "",
        "held_able": sum(row.plan is not None for row in held),
        "is_own": campaign.requester_id == by.pk,
        "waits": campaign_board.waits(campaign),
    }
    return context | (_board(campaign, show) if campaign.batch else {})


def _ring(campaign: Campaign, ring: int | None) -> list[str]:
    return campaign.titles.get(str(ring), []) if ring is not None else []


def _board(campaign: Campaign, show: str) -> dict[str, Any]:
    counts = campaign_board.counts(campaign)
    show = show if show in counts else ""
    columns = campaign_board.board(campaign, show)
    assert campaign.batch is not None
    return {
        "columns": columns,
        "show": show,
        "counts": [(str(state), counts[state]) for state in campaign_board.ORDER if counts.get(state)],
        "all": sum(counts.values()),
        "parts": batch_page.parts(counts, sum(counts.values())),
        "head": campaign_board.headline(campaign, counts, columns),
        **batch_page.may(campaign.batch, counts),
    }


@require_http_methods(["GET", "POST"])
def campaign_new(request: HttpRequest) -> HttpResponse:
    """The form beside what would follow; POST asks for approval of exactly what was seen."""
    check_may_operate(request)
    given = request.POST if request.method == "POST" else request.GET
    stack = given.get("stack", "").strip()[:63]
    asked, params, order, refusal = batch_page.read_asked(given), campaign_form.read_params(given), Order(), None
    if request.method == "GET" and given.get("drifted"):
        asked = campaign_form.drifted(stack)
    hit = campaign_form.Preview()
    try:
        order = campaign_form.read_order(given)
        if stack:
            hit = campaign_form.preview(stack, params, asked, order)
    except ConsoleError as error:
        hit = campaign_form.Preview(refusal=error)
    if request.method == "POST":
        try:
            return redirect("deployments:campaign-detail", pk=_ask(request, stack, params, asked, order, hit).pk)
        except ConsoleError as error:
            refusal = error
    context = {
        "stack": stack, "stacks": campaign_form.offered(), "given": given, "asked": asked, "params": params,
        "names_text": "\n".join(asked.names), "order": order, "values_text": " ".join(order.values), "bys": BY,
        "fleets": FLEETS, "hit": hit, "fields": campaign_form.choices(), "refusal": refusal,
        "most": campaign_form.MOST_LINES,
        "bundles": [one.name for one in wheel_bundles.present() if stack in ("", one.stack)],
    }  # fmt: skip
    if is_part(request):
        return render(request, "deployments/_campaign_consequence.html", context)
    context |= batch_page.choices()
    return render(request, "deployments/campaign_new.html", context, status=refusal.status if refusal else 200)


def _ask(
    request: HttpRequest, stack: str, params: dict[str, str], asked: Any, order: Order, hit: campaign_form.Preview
) -> Campaign:
    if hit.refusal:
        raise hit.refusal
    if request.POST.get("seen") != hit.digest:
        raise Conflict(
            _("The plan is another one than was shown."),
            _("Look at it below, then send it again."),
            code="plan_changed",
        )
    text = {name: request.POST.get(name, "").strip() for name in ("ticket", "why")}
    return campaigns.ask(stack, params, asked, order, by=user_of(request), seen=hit.digest, **text)


@require_POST
def campaign_decide(request: HttpRequest, pk: int) -> HttpResponse:
    """`decision` approve or reject, with a note, of what `seen` names."""
    note, seen = request.POST.get("note", "").strip(), request.POST.get("seen", "")

    def act(campaign: Campaign, by: User) -> None:
        if request.POST.get("decision") == "reject":
            campaigns.reject(campaign, by=by, note=note)
        else:
            campaigns.approve(campaign, by=by, seen=seen, note=note)

    return _changed(request, pk, act)


@require_POST
def campaign_withdraw(request: HttpRequest, pk: int) -> HttpResponse:
    return _changed(request, pk, lambda row, by: campaigns.withdraw(row, by=by))


@require_POST
def campaign_held_decide(request: HttpRequest, pk: int) -> HttpResponse:
    """The servers that were held back: `decision` approve or leave_out."""

    def act(campaign: Campaign, by: User) -> None:
        if request.POST.get("decision") == "leave_out":
            n = campaign_held.leave_out(campaign, by=by)
            messages.success(
                request, ngettext("%(n)s server was left out.", "%(n)s servers were left out.", n) % {"n": n}
            )
        else:
            campaign_held.approve_held(campaign, by=by, seen=request.POST.get("seen", ""))

    return _changed(request, pk, act)


@require_POST
def campaign_pause(request: HttpRequest, pk: int) -> HttpResponse:
    return _changed(request, pk, lambda row, by: batches.pause(campaigns.batch_of(row), by=by))


@require_POST
def campaign_resume(request: HttpRequest, pk: int) -> HttpResponse:
    return _changed(request, pk, lambda row, by: batches.resume(campaigns.batch_of(row), by=by))


@require_POST
def campaign_retry(request: HttpRequest, pk: int) -> HttpResponse:
    return _changed(request, pk, lambda row, by: batches.retry_failed(campaigns.batch_of(row), by=by))


@require_http_methods(["GET", "POST"])
def campaign_stop(request: HttpRequest, pk: int) -> HttpResponse:
    """GET asks whether it is meant; POST stops."""
    check_may_operate(request)
    if request.method == "GET":
        campaign = campaigns.find(pk)
        batch, counts = campaigns.batch_of(campaign), campaign_board.counts(campaign)
        told = [(str(state), counts[state]) for state in campaign_board.ORDER if counts.get(state)]
        context = {"batch": batch, "campaign": campaign, "counts": told}
        return render(request, "deployments/campaign_stop.html", context)
    cancel = bool(request.POST.get("cancel_running"))
    return _changed(request, pk, lambda row, by: batches.stop(campaigns.batch_of(row), by=by, cancel_running=cancel))


def _changed(request: HttpRequest, pk: int, act: Callable[[Campaign, User], object]) -> HttpResponse:
    check_may_operate(request)
    campaign = campaigns.find(pk)
    with refusal_said(request):
        act(campaign, user_of(request))
    return redirect("deployments:campaign-detail", pk=pk)
