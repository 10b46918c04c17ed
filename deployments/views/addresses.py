"""Sending agents to another address of the console."""

import hashlib
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_http_methods

from console import addresses as own
from console.errors import Conflict, ConsoleError
from deployments.looks import Look
from deployments.models import OrderState
from deployments.services import repoint
from deployments.views.lookup import is_part, user_of

WORDS = {
    OrderState.SENT: Look("state-queued", "stale", gettext_lazy("no answer yet")),
    OrderState.DONE: Look("state-ok", "ok", gettext_lazy("has gone there")),
    OrderState.FAILED: Look("state-critical", "critical", gettext_lazy("stays where it was")),
    OrderState.EXPIRED: Look("state-stale", "stale", gettext_lazy("expired")),
}


@require_http_methods(["GET", "POST"])
def agent_addresses(request: HttpRequest) -> HttpResponse:
    """The form beside whom it hits; POST sends the order where these are who was shown."""
    by = user_of(request)
    repoint.check_may(by)
    given = request.POST if request.method == "POST" else request.GET
    typed = given.get("names", "").replace(",", " ").split()
    hit, wished, refusal = repoint.Hit([], [], []), None, None
    try:
        hit = repoint.preview([name[:63] for name in typed] if typed else None)
        if request.method == "POST" or given.get("redis"):
            more = (given.get(name, "") for name in ("console", "pin", "ca"))
            wished = repoint.read(given.get("redis", "").split(), *more)
        if request.method == "POST" and wished:
            _check_seen(request, hit)
            n = len(repoint.start(hit, wished, by=by))
            told = ngettext("The order went to %(n)s agent.", "The order went to %(n)s agents.", n) % {"n": n}
            messages.success(request, f"{told} {_('Each tries the address, and answers below.')}")
            return redirect("deployments:server-agents-addresses")
    except ConsoleError as error:
        refusal = error
    context: dict[str, Any] = {
        "given": given,
        "hit": hit,
        "wished": wished,
        "refusal": refusal,
        "seen": _digest(hit),
        "orders": [(order, WORDS[OrderState(order.state)]) for order in repoint.newest()],
        "url": own.public_url(),
        "redis_url": own.public_redis_url().rpartition("@")[2],
    }
    if is_part(request):
        return render(request, "deployments/_agent_addresses_hit.html", context)
    status = refusal.status if refusal and request.method == "POST" else 200
    return render(request, "deployments/agent_addresses.html", context, status=status)


def _digest(hit: repoint.Hit) -> str:
    """Names exactly these servers, so that what is confirmed is what was seen."""
    return hashlib.sha256(",".join(server.name for server in hit.servers).encode()).hexdigest()[:16]


def _check_seen(request: HttpRequest, hit: repoint.Hit) -> None:
    if request.POST.get("seen") != _digest(hit):
        raise Conflict(
            _("The selection hits other servers than those that were shown."),
            _("Look at the list below, then send it again."),
            code="selection_changed",
        )
