"""What the log of a replica that failed says, and what helps: one click makes a revision of it."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from console.errors import ConsoleError
from deployments.models import Replica
from deployments.services import benchmarks, remedying
from deployments.serving.remedies import Offer
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
        "findings": [_shown(replica, one) for one in remedying.shown(replica)],
        "refusal": refusal,
    }
    status = refusal.status if refusal else 200
    return render(request, "deployments/replica_remedy.html", context, status=status)


def _shown(replica: Replica, one: remedying.Shown) -> dict[str, Any]:
    return {
        "finding": one.finding,
        "piece": one.piece,
        "offers": [_offer(replica, offer) for offer in one.offers],
    }


def _offer(replica: Replica, offer: Offer) -> dict[str, Any]:
    job = offer.job or {}
    return {
        "offer": offer,
        "changes": remedying.changes(replica, offer) if offer.change else [],
        "job": f"{reverse('deployments:job-new')}?kind={job['kind']}&server={replica.server.name}" if job else "",
    }
