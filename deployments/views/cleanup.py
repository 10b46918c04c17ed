"""The page of a clean-up: what the newest look has found, ticks, the question, the job."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.views.decorators.http import require_http_methods

from console.errors import ConsoleError
from console.middleware import wants_json
from deployments.kinds.cleanup import INTERRUPTS
from deployments.models import Job, Server
from deployments.services import cleanup
from deployments.views.lookup import check_may_operate, find_server, is_part, user_of


@require_http_methods(["GET", "POST"])
def server_cleanup(request: HttpRequest, name: str) -> HttpResponse:
    """GET lists; POST with `do` = look looks anew, = ask names what would go, = clean queues the job."""
    server = find_server(name)
    refusal: ConsoleError | None = None
    if request.method == "POST":
        check_may_operate(request)
        try:
            return _done(request, server)
        except ConsoleError as error:
            refusal = error
    look = cleanup.newest(server)
    context = {
        "server": server,
        "look": look,
        "under_way": cleanup.under_way(server),
        "refusal": refusal,
        "ticked": set(request.POST.getlist("target")),
    }
    if wants_json(request) and refusal is None:
        return JsonResponse({"html": render_to_string("deployments/_cleanup_live.html", context, request)})
    template = "deployments/_cleanup_live.html" if is_part(request) else "deployments/server_cleanup.html"
    return render(request, template, context, status=refusal.status if refusal else 200)


def _done(request: HttpRequest, server: Server) -> HttpResponse:
    """Raises ConsoleError."""
    if request.POST.get("do") == "look":
        cleanup.queue_look(server, by=user_of(request))
        return redirect("deployments:server-cleanup", name=server.name)
    look = cleanup.find(server, request.POST.get("look", ""))
    found = cleanup.ticked(look, request.POST.getlist("target"))
    if request.POST.get("do") == "clean":
        job: Job = cleanup.queue(look, found, by=user_of(request), ticket=request.POST.get("ticket", "").strip())
        return redirect("deployments:job-detail", pk=job.pk)
    total = cleanup.amount(sum(one.bytes or 0 for one in found))
    context = {"server": server, "look": look, "found": found, "total": total, "interrupts": INTERRUPTS}
    return render(request, "deployments/cleanup_ask.html", context)
