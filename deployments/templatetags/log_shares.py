"""The links to a log, on the page of its job or replica."""

from typing import Any

from django import template
from django.conf import settings
from django.template.context import RequestContext
from django.urls import reverse

from deployments.models import Attempt, EngineLog
from deployments.services import log_shares

register = template.Library()


@register.inclusion_tag("deployments/_log_shares.html", takes_context=True)
def shares_of(context: RequestContext, head: Attempt | EngineLog | None) -> dict[str, Any]:
    """Those of all logs of the same job or replica, and the form for one to `head`."""
    if head is None or not context.get("may_operate"):
        return {}
    if isinstance(head, Attempt):
        rows, name, make = log_shares.of_job(head.job), "attempt", reverse("deployments:job-share", args=[head.job_id])
    else:
        replica = head.replica
        rows, name = log_shares.of_replica(replica), "piece"
        make = reverse("deployments:replica-share", args=[replica.deployment.name, replica.n])
    return {
        "request": context.get("request"), "head": head, "rows": rows, "make": make, "field": name,
        "is_on": settings.LOG_SHARE, "hours": log_shares.HOURS, "csrf_token": context.get("csrf_token"),
    }  # fmt: skip
