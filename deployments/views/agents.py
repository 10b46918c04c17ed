"""The agents' versions, and how they are brought to the console's own."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.errors import Conflict, ConsoleError
from deployments.agent.dispatch import UPGRADE
from deployments.models import Batch
from deployments.models.batch import BatchState
from deployments.services import batch_page, batches, jobs, versions
from deployments.views.job_changes import consequence
from deployments.views.lookup import check_may_operate, find_server, is_part, user_of

MOST_ROWS = 500


@require_GET
def agent_list(request: HttpRequest) -> HttpResponse:
    """How many servers run which version, and each of them; ?state= and ?code= keep some."""
    wanted = versions.target()
    rows = versions.rows(wanted)
    state, code = request.GET.get("state", ""), request.GET.get("code", "")[:16]
    real = [row for row in rows if not row.server.simulated]
    kept = [row for row in real if state in ("", row.state) and code in ("", row.server.agent_code)]
    context = {
        "wanted": wanted,
        "counts": versions.counts(rows),
        "rows": kept[:MOST_ROWS],
        "left_out": max(0, len(kept) - MOST_ROWS),
        "is_filtered": bool(state or code),
        "simulated": len(rows) - len(real),
        "behind": sum(row.state == "behind" for row in real),
        "can_upgrade": any(row.can_upgrade for row in kept[:MOST_ROWS]),
        "running": Batch.objects.filter(kind=UPGRADE, state__in=(BatchState.RUNNING, BatchState.PAUSED)).first(),
    }
    return render(request, "deployments/agent_list.html", context)


@require_http_methods(["GET", "POST"])
def agent_upgrade(request: HttpRequest) -> HttpResponse:
    """Whom an upgrade hits and in which waves, ?name= or ?all=1; POST starts it where these are who was shown."""
    check_may_operate(request)
    given = request.POST if request.method == "POST" else request.GET
    names = None if given.get("all") else [name[:63] for name in given.getlist("name") if name]
    plan, hit, refusal = batches.Plan(), batch_page.Preview(), None
    try:
        plan = batch_page.read_plan(given)
        asked = versions.hit(names)
        hit = batch_page.preview(asked, plan)
        if request.method == "POST":
            _check_seen(request, hit)
            ticket = request.POST.get("ticket", "").strip()
            batch = versions.upgrade(asked, plan, by=user_of(request), ticket=ticket)
            return redirect("deployments:batch-detail", pk=batch.pk)
    except ConsoleError as error:
        refusal = error
    wanted = versions.target()
    context: dict[str, Any] = {
        "kind": UPGRADE,
        "given": given,
        "names": [server.name for server in hit.servers] or names or [],
        "wanted": wanted,
        "plan_": plan,
        "hit": hit if hit.servers or refusal is None else batch_page.Preview(refusal=refusal),
        "refusal": refusal if request.method == "POST" else None,
        **consequence(jobs.find_kind(UPGRADE), UPGRADE, versions.params(wanted)),
    }
    if is_part(request):
        return render(request, "deployments/_batch_consequence.html", context)
    return render(request, "deployments/agent_upgrade.html", context, status=refusal.status if refusal else 200)


def _check_seen(request: HttpRequest, hit: batch_page.Preview) -> None:
    if hit.refusal:
        raise hit.refusal
    if request.POST.get("seen") != hit.digest:
        raise Conflict(
            _("The selection hits other servers than those that were shown."),
            _("Look at the list below, then start the upgrade again."),
            code="selection_changed",
        )


@require_POST
def server_upgrade(request: HttpRequest, name: str) -> HttpResponse:
    """Queue the upgrade of one server's agent."""
    server = find_server(name)
    try:
        return redirect("deployments:job-detail", pk=versions.upgrade_one(server, by=user_of(request)).pk)
    except ConsoleError as error:
        messages.error(request, f"{error.what} {error.do}")
    return redirect("monitoring:server-detail", name=name)
