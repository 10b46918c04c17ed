"""The page that searches all logs by text and time."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.errors import ConsoleError, Invalid
from deployments.models import Deployment, Server
from deployments.services import logs_everywhere
from deployments.views.log_search import query_of

MOST_CHOICES = 2000


def asked_of(given: Any) -> logs_everywhere.Asked:
    """Raises Invalid."""
    kind = given.get("kind", "")
    if kind and kind not in logs_everywhere.KINDS:
        raise Invalid(
            _("There is no kind of log “%(kind)s”.") % {"kind": kind[:20]},
            _("Choose one of: %(kinds)s.") % {"kinds": ", ".join(logs_everywhere.KINDS)},
        )
    return logs_everywhere.Asked(
        query=query_of(given),
        server=given.get("server", "").strip()[:63],
        deployment=given.get("deployment", "").strip()[:63],
        kind=kind,
        since=moment(given.get("since", "")),
        until=moment(given.get("until", "")),
        before=given.get("before", "")[:80],
    )


def moment(text: str) -> datetime | None:
    """2026-11-30T14:00, in the time of this console where it names no other; None for ''. Raises Invalid."""
    if not text:
        return None
    try:
        found = parse_datetime(text)
    except ValueError:
        found = None
    if found is None:
        raise Invalid(
            _("“%(text)s” is no time.") % {"text": text[:40]},
            _("Write it as 2026-11-30T14:00, with +08:00 or without."),
        )
    return found if timezone.is_aware(found) else timezone.make_aware(found)


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
