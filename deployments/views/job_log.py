"""The log of a job: ranges of raw records for its viewer, the whole as plain text."""

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_GET

from deployments.asked_logs import range_of
from deployments.log_answers import whole_as_text
from deployments.services import log_keeping, logs
from deployments.views.lookup import find_attempt, find_job


@require_GET
@gzip_page
def job_lines(request: HttpRequest, pk: int) -> JsonResponse:
    """Raw records of the log: after=, before= or neither (the tail), at most n= of them."""
    attempt, _every = find_attempt(find_job(pk), request.GET.get("attempt"))
    if attempt is None:
        return JsonResponse({"attempt": None, "first": 1, "n": 0, "total": 0, "text": "", "done": False})
    if gone := log_keeping.said(attempt):
        return JsonResponse({"attempt": attempt.pk, **log_keeping.NO_LINES, "state": attempt.state, "deleted": gone})
    found = logs.asked(attempt, *range_of(request))
    return JsonResponse({"attempt": attempt.pk, **vars(found), "done": attempt.done, "state": attempt.state})


@require_GET
def job_raw(request: HttpRequest, pk: int) -> HttpResponseBase:
    """The whole log as plain text; ?download=1 as a file."""
    job = find_job(pk)
    attempt, _every = find_attempt(job, request.GET.get("attempt"))
    name = f"job-{job.pk}-attempt-{attempt.n if attempt else 0}.log"
    return whole_as_text(attempt, name, download=bool(request.GET.get("download")))
