"""Switches of one server: its queue and its maintenance."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from console.models import User
from deployments.models import Job, JobState, Server
from deployments.services import servers
from deployments.views.lookup import check_may_operate, find_server, refusal_said, user_of


@require_http_methods(["GET", "POST"])
def queue_pause(request: HttpRequest, name: str) -> HttpResponse:
    """GET asks for the reason; POST pauses."""
    check_may_operate(request)
    server = find_server(name)
    if request.method == "GET":
        queued = Job.objects.filter(server=server, state=JobState.QUEUED).count()
        return render(request, "deployments/server_pause.html", {"server": server, "queued": queued})
    reason = request.POST.get("reason", "")
    return _changed(request, server, lambda row, by: servers.pause_queue(row, by=by, reason=reason))


@require_POST
def queue_resume(request: HttpRequest, name: str) -> HttpResponse:
    return _changed(request, find_server(name), lambda row, by: servers.resume_queue(row, by=by))


@require_http_methods(["GET", "POST"])
def maintenance(request: HttpRequest, name: str) -> HttpResponse:
    """GET asks for the reason; POST with `on` = 1 begins, with anything else ends it."""
    check_may_operate(request)
    server = find_server(name)
    if request.method == "GET":
        return render(request, "deployments/server_ask.html", {"server": server, "what": "maintenance"})
    on = request.POST.get("on") == "1"
    more = {name: request.POST.get(name, "") for name in ("reason", "ticket")}
    return _changed(request, server, lambda row, by: servers.set_maintenance(row, on, by=by, **more))


def _changed(request: HttpRequest, server: Server, act: Callable[[Server, User], Server]) -> HttpResponse:
    check_may_operate(request)
    with refusal_said(request):
        act(server, user_of(request))
    return redirect("monitoring:server-detail", name=server.name)
