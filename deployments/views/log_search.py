"""What the log viewer asks of a whole log: hits, a filtered view, the first error, levels and processes."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, JsonResponse
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_GET

from deployments.asked_logs import FARTHEST, number, query_of
from deployments.services import agent_logs, engine_logs, log_keeping, log_search, logs
from deployments.views.lookup import find_attempt, find_job, find_replica, find_server

NOTHING = {"hits": [], "lines": [], "text": "", "first": 1, "n": 0, "count": 0, "line": None, "scanned_to": 0,
           "total": 0, "complete": True, "done": True, "levels": {}, "ranks": []}  # fmt: skip


def find(request: HttpRequest, head: logs.Head) -> dict[str, Any]:
    found = _search(request, head, stop=request.GET.get("stop") == "1")
    hits = [{"n": hit.line, "ms": hit.ms, "spans": hit.spans} for hit in found.hits]
    return {"hits": hits, **_place(found), "count": found.count, "complete": found.complete}


def filtered(request: HttpRequest, head: logs.Head) -> dict[str, Any]:
    """Raw records that pass, with their line numbers: behind `after`, before `before`, or the last ones."""
    given = request.GET if {"after", "before"} & request.GET.keys() else {"before": str(head.next_line)}
    found = _search(request, head, stop=True, place=given)
    text = b"\n".join(hit.record for hit in found.hits).decode("utf-8", "replace")
    lines = [hit.line for hit in found.hits]
    return {"first": lines[0] if lines else 1, "n": len(lines), "lines": lines, "text": text, **_place(found),
            "done": found.complete}  # fmt: skip


def first_error(request: HttpRequest, head: logs.Head) -> dict[str, Any]:
    found = log_search.first_error(head, number(request, "after", 0, FARTHEST))
    return {"line": found.hits[0].line if found.hits else None, **_place(found)}


def facets(request: HttpRequest, head: logs.Head) -> dict[str, Any]:
    """Counts behind `after`; whoever asks adds them to those of the part before."""
    found = log_search.facets(head, number(request, "after", 0, FARTHEST))
    return {"levels": dict(found.levels), "ranks": log_search.in_order(found.ranks), "scanned_to": found.scanned_to,
            "total": found.total, "complete": found.complete}  # fmt: skip


def _search(request: HttpRequest, head: logs.Head, *, stop: bool, place: Any = None) -> log_search.Found:
    given = request.GET if place is None else place
    n = number(request, "n", 200, log_search.MOST_HITS)
    if given.get("before"):
        before = number(request, "before", 1, FARTHEST) if "before" in request.GET else int(given["before"])
        return log_search.search(head, query_of(request.GET), before=before, n=n)
    after = number(request, "after", 0, FARTHEST)
    return log_search.search(head, query_of(request.GET), after=after, n=n, stop=stop)


def _place(found: log_search.Found) -> dict[str, int]:
    return {"scanned_to": found.scanned_to, "total": found.total}


Answer = Callable[[HttpRequest, logs.Head], dict[str, Any]]
SERVICES: dict[str, Answer] = {"find": find, "filtered": filtered, "first-error": first_error, "facets": facets}


def _answer(request: HttpRequest, head: logs.Head | None, service: str) -> JsonResponse:
    log_keeping.check_kept(head)
    return JsonResponse(SERVICES[service](request, head) if head else NOTHING)


@require_GET
@gzip_page
def job_log_service(request: HttpRequest, pk: int, service: str) -> JsonResponse:
    attempt, _every = find_attempt(find_job(pk), request.GET.get("attempt"))
    return _answer(request, attempt, service)


@require_GET
@gzip_page
def replica_log_service(request: HttpRequest, name: str, n: int, service: str) -> JsonResponse:
    piece = engine_logs.find(find_replica(name, n), request.GET.get("attempt", ""))
    return _answer(request, piece, service)


@require_GET
@gzip_page
def agent_log_service(request: HttpRequest, name: str, service: str) -> JsonResponse:
    piece = agent_logs.find(find_server(name), request.GET.get("attempt", ""))
    return _answer(request, piece, service)
