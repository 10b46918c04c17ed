"""Pages of holds: the list, a new one, and one to change or end."""

from datetime import datetime, timedelta

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from console.errors import ConsoleError, Invalid
from deployments.models import Hold, Npu, Server
from deployments.services import holds, npu_states
from deployments.views.lookup import check_may_operate, find_server, only_server, user_of

ENDED_SHOWN = 50
MOST_CHOICES = 2000


@require_GET
def hold_list(request: HttpRequest) -> HttpResponse:
    """Those that stand, and the last that have ended."""
    context = {"rows": list(holds.rows()), "ended": list(holds.rows(ended=True)[:ENDED_SHOWN])}
    return render(request, "deployments/hold_list.html", context)


@require_http_methods(["GET", "POST"])
def hold_new(request: HttpRequest) -> HttpResponse:
    """GET ?server=NAME&npu=BUS shows the form, POST makes it, or shows the form again with what was typed."""
    check_may_operate(request)
    sent = request.POST if request.method == "POST" else request.GET
    name = sent.get("server", "") or _only_with_npus()
    server = find_server(name) if name else None
    refusal: ConsoleError | None = None
    if request.method == "POST":
        try:
            hold = _made(request, server)
            messages.success(request, _("The NPUs are kept for %(team)s.") % {"team": hold.team})
            return redirect("deployments:hold-list")
        except ConsoleError as error:
            refusal = error
    given = {field: sent.get(field, "") for field in ("team", "reason", "ticket", "until")}
    context = {
        "server": server,
        "servers": Server.objects.present().filter(npus__isnull=False).distinct().order_by("name")
        .values_list("name", flat=True)[:MOST_CHOICES],
        "npus": npu_states.of(server) if server else [],
        "chosen": {one.upper() for one in sent.getlist("npu")},
        "given": {**given, "until": given["until"] or local_text(timezone.now() + timedelta(days=7))},
        "refusal": refusal,
    }  # fmt: skip
    return render(request, "deployments/hold_new.html", context, status=refusal.status if refusal else 200)


def _only_with_npus() -> str:
    """The name of the one real server, where it has NPUs that could be kept; '' where a person has to choose."""
    name = only_server()
    return name if name and Npu.objects.filter(server__name=name).exists() else ""


def _made(request: HttpRequest, server: Server | None) -> Hold:
    if server is None:
        raise Invalid(_("No server was chosen."), _("Choose one, then its NPUs are listed."), code="no_server")
    return holds.make(
        server, request.POST.getlist("npu"), team=request.POST.get("team", ""),
        reason=request.POST.get("reason", ""), until=holds.moment(request.POST.get("until", "")),
        by=user_of(request), ticket=request.POST.get("ticket", "").strip(),
    )  # fmt: skip


@require_http_methods(["GET", "POST"])
def hold_change(request: HttpRequest, pk: int) -> HttpResponse:
    """GET asks; POST with `do` = extend sets another end, with `do` = end frees the NPUs."""
    check_may_operate(request)
    hold = holds.find(pk)
    refusal: ConsoleError | None = None
    if request.method == "POST":
        try:
            if request.POST.get("do") == "end":
                holds.end(hold, by=user_of(request))
                messages.success(request, _("The hold has ended; its NPUs may be had again."))
            else:
                holds.extend(hold, holds.moment(request.POST.get("until", "")), by=user_of(request))
                messages.success(request, _("The hold ends at another time now."))
            return redirect("deployments:hold-list")
        except ConsoleError as error:
            refusal = error
    context = {
        "hold": hold,
        "npus": sorted(row.npu for row in hold.reservations.all()),
        "until": request.POST.get("until") or local_text(hold.until),
        "ends": request.GET.get("do") == "end",
        "refusal": refusal,
    }
    return render(request, "deployments/hold_change.html", context, status=refusal.status if refusal else 200)


def local_text(at: datetime) -> str:
    """As a field of date and time takes it, on the console's clock, whole minutes."""
    return timezone.localtime(at).strftime("%Y-%m-%dT%H:%M")
