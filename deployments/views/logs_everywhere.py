"""The page that searches all logs by text and time."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from console.errors import ConsoleError
from deployments.asked_logs import asked_of
from deployments.models import Deployment, Server
from deployments.services import logs_everywhere

MOST_CHOICES = 2000


@require_GET
def logs_page(request: HttpRequest) -> HttpResponse:
    """Without q= the form alone."""
    names = ("q", "server", "deployment", "kind", "since", "until", "regex", "case")
    context: dict[str, Any] = {
        "given": {name: request.GET.get(name, "") for name in names}, "longest": logs_everywhere.MOST_HITS,
        "servers": list(Server.objects.present().order_by("name").values_list("name", flat=True)[:MOST_CHOICES]),
        "deployments": list(
            Deployment.objects.filter(deleted_at=None).order_by("name").values_list("name", flat=True)[:MOST_CHOICES]
        ),
    }  # fmt: skip
    status = 200
    if request.GET.get("q"):
        try:
            result = logs_everywhere.search(asked_of(request.GET))
            context["result"] = result
            if result.following:
                following = request.GET.copy()
                following["before"] = result.following
                context["following"] = following.urlencode()
        except ConsoleError as refusal:
            context["refusal"], status = refusal, 422
    return render(request, "deployments/logs.html", context, status=status)
