"""REST: what stands in a whole log, by text or expression, level and process; a second of work at a time."""

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from console.errors import NotFound
from deployments.asked_logs import FARTHEST, asked_of, find_attempt, find_job, find_replica
from deployments.models import Attempt, EngineLog
from deployments.services import engine_logs, log_keeping, log_search, logs, logs_everywhere

router = Router(tags=["logs"])


class Asked(Schema):
    q: str = Field(default="", max_length=1000, description="Text, or with `regex` an expression as RE2 takes it")
    regex: bool = False
    case: bool = Field(default=False, description="Whether a and A differ")
    level: str = Field(default="", pattern="^(error|warning|info|debug)?$", description="Lines of that level alone")
    rank: str = Field(default="", max_length=60, description="Lines of that process alone: 3, Worker_TP1, …")
    after: int = Field(default=0, ge=0, le=FARTHEST, description="`scanned_to` of an answer that is not `complete`")
    n: int = Field(default=200, ge=1, le=log_search.MOST_HITS, description="Hits at most; those behind are counted")
    log: str = Field(default="", max_length=40, description="Id of an attempt or a start; none: the newest")


@router.get("/jobs/{int:job_id}/log/search", summary="Lines of its log that hold a text or match an expression")
def search_job(request: HttpRequest, job_id: int, asked: Query[Asked]) -> HttpResponse:
    return _answer(find_attempt(find_job(job_id), asked.log), asked)


@router.get("/deployments/{name}/replicas/{int:n}/log/search",
            summary="Lines of its log that hold a text or match an expression")  # fmt: skip
def search_replica(request: HttpRequest, name: str, n: int, asked: Query[Asked]) -> HttpResponse:
    return _answer(engine_logs.find(find_replica(name, n), asked.log), asked)


@router.get("/logs", summary="Lines of all logs that hold a text, the newest log first")
def search_all(request: HttpRequest, q: str, server: str = "", deployment: str = "", kind: str = "", since: str = "",
               until: str = "", regex: bool = False, case: bool = False, before: str = "") -> HttpResponse:  # fmt: skip
    """Of one server, one deployment or everything, by time (RFC 3339); `before` is `following` of the answer before."""
    given = {"q": q, "server": server, "deployment": deployment, "kind": kind, "since": since, "until": until,
             "regex": "1" if regex else "", "case": "1" if case else "", "before": before}  # fmt: skip
    return Answer(logs_everywhere.search(asked_of(given)).as_json())


def _answer(head: Attempt | EngineLog | None, asked: Asked) -> HttpResponse:
    if head is None:
        raise NotFound(_("There is no such log."), _("Leave `log` out for the newest."), code="no_such_log")
    log_keeping.check_kept(head)
    query = log_search.Query(asked.q, asked.regex, asked.case, asked.level, asked.rank)
    found = log_search.search(head, query, after=asked.after, n=asked.n)
    hits = [{"n": hit.line, "ms": hit.ms, "spans": hit.spans, "text": _plain(hit.record)} for hit in found.hits]
    return Answer({"log": head.pk, "hits": hits, "count": found.count, "scanned_to": found.scanned_to,
                   "total": found.total, "complete": found.complete})  # fmt: skip


def _plain(record: bytes) -> str:
    plain = logs.PlainText()
    return "".join([*plain.feed([record]), *plain.flush()]).rstrip("\n")
