"""The list of jobs, as a page and as CSV."""

from collections.abc import Iterable, Iterator
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console import spreadsheet
from console.language import pick
from console.middleware import wants_json
from deployments import kinds
from deployments.models import Job, JobState
from deployments.services import job_list as listing
from deployments.templatetags.jobs import job_took
from deployments.views.lookup import is_part

CSV_HEAD = (
    "job", "state", "kind", "server", "simulated", "requester", "ticket", "queued", "started", "ended", "took_s",
    "reason",
)  # fmt: skip


@require_GET
def job_list(request: HttpRequest) -> HttpResponse:
    filters = listing.read_filters(request.GET)
    page = listing.page(filters)
    context = {
        "filters": filters,
        "page": page,
        "states": [("under_way", _("Under way")), *((state.value, state.label) for state in JobState)],
        "counts": listing.under_way_counts(),
        "kinds": kinds.names(),
        "older": filters.address(before=page.older) if page.older else "",
        "newer": filters.address(after=page.newer) if page.newer else "",
    }
    if wants_json(request):  # a page that polls: the rows as the server draws them
        return JsonResponse({"html": render_to_string("deployments/_job_rows.html", context, request)})
    return render(request, "deployments/_job_rows.html" if is_part(request) else "deployments/job_list.html", context)


@require_GET
def job_csv(request: HttpRequest) -> StreamingHttpResponse:
    """Every job that matches, as CSV."""
    found = listing.every(listing.read_filters(request.GET))
    return spreadsheet.answer("jobs.csv", CSV_HEAD, _csv_rows(found))


def _csv_rows(found: Iterable[Job]) -> Iterator[list[Any]]:
    for job in found:
        times = [at.isoformat() if at else "" for at in (job.created_at, job.started_at, job.ended_at)]
        seconds = job_took(job)
        by = job.requester.username if job.requester else ""
        yield [
            job.pk, job.state, job.kind, job.server.name, job.server.simulated, by, job.ticket, *times,
            "" if seconds is None else round(seconds, 1), pick(job.reason),
        ]  # fmt: skip
