"""The log of a job: ranges of raw records for its viewer, the whole as plain text."""

from collections.abc import AsyncIterator

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_GET

from console.errors import Invalid
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
    n = number(request, "n", 500, logs.MAX_LINES)
    if "after" in request.GET:
        found = logs.after(attempt, number(request, "after", 0, 10**15), n)
    elif "before" in request.GET:
        found = logs.before(attempt, number(request, "before", 1, 10**15), n)
    else:
        found = logs.tail(attempt, n)
    return JsonResponse({"attempt": attempt.pk, **vars(found), "done": attempt.done, "state": attempt.state})


def number(request: HttpRequest, name: str, default: int, most: int) -> int:
    raw = request.GET.get(name, "")
    if not raw:
        return default
    if not raw.isascii() or not raw.isdigit() or len(raw) > 15:
        raise Invalid(
            _("%(name)s must be a whole number from 0.") % {"name": name}, _("Mend the address and ask again.")
        )
    return min(int(raw), most)


@require_GET
def job_raw(request: HttpRequest, pk: int) -> HttpResponseBase:
    """The whole log as plain text; ?download=1 as a file."""
    job = find_job(pk)
    attempt, _every = find_attempt(job, request.GET.get("attempt"))
    if attempt is None:
        return HttpResponse("", content_type="text/plain; charset=utf-8")
    log_keeping.check_kept(attempt)
    response = StreamingHttpResponse(_raw_lines(attempt.pk), content_type="text/plain; charset=utf-8")
    disposition = "attachment" if request.GET.get("download") else "inline"
    response["Content-Disposition"] = f'{disposition}; filename="job-{job.pk}-attempt-{attempt.n}.log"'
    return response


async def _raw_lines(attempt_id: str) -> AsyncIterator[bytes]:
    line, writer = 0, logs.PlainText()
    while chunks := await sync_to_async(logs.chunks_after)(attempt_id, line):
        for first, n, records in chunks:
            yield "".join(writer.feed(records)).encode("utf-8", "replace")
            line = first + n - 1
    yield "".join(writer.flush()).encode("utf-8", "replace")
