"""The page of alerts."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console import alerts
from console.middleware import wants_json
from console.models import Alert
from deployments.views.lookup import user_of

AT_MOST = 500  # open ones that are drawn; a site with more has one cause behind them
ENDED_SHOWN = 50


@require_GET
def alert_list(request: HttpRequest) -> HttpResponse:
    """What is open, worst first, and what ended last."""
    found = list(Alert.objects.filter(ended_at=None)[:AT_MOST])
    found.sort(key=lambda alert: (("critical", "warning", "info").index(alert.severity), -alert.pk))
    ended = Alert.objects.exclude(ended_at=None).select_related("resolved_by").order_by("-ended_at")[:ENDED_SHOWN]
    context = {"firing": found, "ended": list(ended)}
    if wants_json(request):
        return JsonResponse({"html": render_to_string("monitoring/_alert_rows.html", context, request)})
    part = request.headers.get("X-Part") == "1"
    return render(request, "monitoring/_alert_rows.html" if part else "monitoring/alert_list.html", context)


@require_GET
def alert_counts(request: HttpRequest) -> JsonResponse:
    """{open, critical}: for pages that no websocket reaches."""
    return JsonResponse(alerts.counts()._asdict())


@require_POST
def alert_resolve(request: HttpRequest, pk: int) -> HttpResponse:
    alerts.resolve_by_hand(user_of(request), pk)
    messages.success(request, _("Resolved. It comes back if its cause does."))
    return redirect("monitoring:alert-list")
