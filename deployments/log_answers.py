"""Logs as text, as pages and REST answer them. One whose lines were deleted says so: ConsoleError (410)."""

from django.http import HttpResponse, HttpResponseBase

from console.answers import file_in_parts
from deployments.services import log_keeping, logs

TEXT = "text/plain; charset=utf-8"


def range_as_text(head: logs.Head | None, after: int | None, limit: int) -> HttpResponse:
    """At most `limit` lines behind `after`, without it the last ones; `X-Next-After` goes on from there."""
    log_keeping.check_kept(head)
    place = None if after is None else max(0, after)
    lines = logs.asked(head, place, None, max(1, min(limit, logs.MAX_LINES))) if head else None
    response = HttpResponse(logs.plain_text(lines) if lines else "", content_type=TEXT)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["X-Piece"] = head.pk if head else ""
    response.headers["X-Next-After"] = str(lines.first + lines.n - 1 if lines and lines.n else after or 0)
    return response


def whole_as_text(head: logs.Head | None, name: str, *, download: bool) -> HttpResponseBase:
    """All of it, sent while it is read; as a file of that name where somebody wants to keep it."""
    if head is None:
        return HttpResponse("", content_type=TEXT)
    log_keeping.check_kept(head)
    response = file_in_parts(logs.whole(head), name, TEXT)
    if not download:
        response["Content-Disposition"] = f'inline; filename="{name}"'
    return response
