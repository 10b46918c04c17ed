"""What the log of a replica that failed says, and what helps: one click makes a revision of it."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from console.errors import ConsoleError
from console.models import User
from deployments.models import Replica
from deployments.services import benchmarks, remedying
from deployments.serving.remedies import Offer
from deployments.views import remedy_links
from deployments.views.lookup import check_may_operate, user_of


@require_http_methods(["GET", "POST"])
def replica_remedy(request: HttpRequest, name: str, n: int) -> HttpResponse:
    """GET shows findings, remedies, their sums and diffs; POST with `remedy` makes the revision."""
    replica = remedying.find_replica(benchmarks.find_deployment(name), n)
    refusal: ConsoleError | None = None
    if request.method == "POST":
        check_may_operate(request)
        try:
            revision = remedying.apply(replica, request.POST.get("remedy", "")[:80], by=user_of(request))
            messages.success(request, _("Revision %(n)s is made and rolls out.") % {"n": revision.n})
            return redirect("deployments:deployment-detail", name=name)
        except ConsoleError as error:
            refusal = error
    context = {
        "deployment": replica.deployment,
        "replica": replica,
        "current": remedying.is_current(replica),
        "findings": [_shown(replica, one, user_of(request)) for one in remedying.shown(replica)],
        "refusal": refusal,
    }
    status = refusal.status if refusal else 200
    return render(request, "deployments/replica_remedy.html", context, status=status)


def _shown(replica: Replica, one: remedying.Shown, reader: User) -> dict[str, Any]:
    return {
        "finding": one.finding,
        "piece": one.piece,
        "offers": [_offer(replica, offer, reader) for offer in one.offers],
    }


def _offer(replica: Replica, offer: Offer, reader: User) -> dict[str, Any]:
    known, kind = remedy_links.of_replica(replica), str((offer.job or {}).get("kind", ""))
    return {
        "offer": offer,
        "changes": remedying.changes(replica, offer) if offer.change else [],
        "job": remedy_links.job_address(kind, replica.server.name, known, reader),
    }
