"""REST: logs of several servers as one, all logs of a job or replica as a file, links for people without an account."""

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.translation import gettext as _
from ninja import Field, Query, Router, Schema

from console import audit
from console.answers import Answer, file_in_parts
from console.errors import NotFound
from deployments.asked import Strict, user_of
from deployments.asked_logs import find_attempt, find_job, find_replica
from deployments.batch_api import find_batch
from deployments.models import Attempt, EngineLog
from deployments.services import deployments, engine_logs, log_shares, log_zip, merged_logs
from deployments.services.logs import MAX_LINES
from deployments.services.merged_logs import MOST_TEXT, Many, Wanted

router = Router(tags=["logs"])
ZIP = "application/zip"


class Merged(Schema):
    before: str = Field(default="", max_length=MOST_TEXT, description="`before` of an answer: older lines")
    after: str = Field(default="", max_length=MOST_TEXT, description="`after` of an answer: what came since")
    n: int = Field(default=500, ge=1, le=MAX_LINES, description="Lines at most; without a place the last ones")
    off: str = Field(default="", max_length=MOST_TEXT, description="Keys of logs to leave out, with commas between")
    format: str = Field(default="json", pattern="^(json|text)$", description="json, or text with X-Before and X-After")


class MergedReplicas(Merged):
    replica: int | None = Field(default=None, ge=1, lt=2**31, description="Only that one: each of its servers is a log")


@router.get("/deployments/{name}/log", summary="Logs of its replicas by time, corrected by what clocks are off")
def deployment_log(request: HttpRequest, name: str, wanted: Query[MergedReplicas]) -> HttpResponse:
    return _answer(merged_logs.of_deployment(deployments.find(name), wanted.replica), wanted)


@router.get("/batches/{int:batch_id}/log", summary="Logs of its jobs by time, corrected by what clocks are off")
def batch_log(request: HttpRequest, batch_id: int, wanted: Query[Merged]) -> HttpResponse:
    return _answer(merged_logs.of_batch(find_batch(batch_id)), wanted)


def _answer(many: Many, wanted: Merged) -> HttpResponse:
    found = merged_logs.read(many, Wanted(wanted.before, wanted.after, wanted.n, frozenset(wanted.off.split(","))))
    if wanted.format == "json":
        return Answer(found)
    response = HttpResponse(merged_logs.plain_text(found), content_type="text/plain; charset=utf-8")
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["X-Before"] = found["before"]
    response.headers["X-After"] = found["after"]
    return response


@router.get("/jobs/{int:job_id}/zip", summary="All its logs with what is known of it, as a ZIP")
def job_zip(request: HttpRequest, job_id: int) -> HttpResponseBase:
    job = find_job(job_id)
    parts = log_zip.of_job(job)
    audit.record(user_of(request), "log.downloaded", job)
    return file_in_parts(parts, f"job-{job.pk}.zip", ZIP)


@router.get("/deployments/{name}/replicas/{int:n}/zip", summary="All its logs with what is known of it, as a ZIP")
def replica_zip(request: HttpRequest, name: str, n: int) -> HttpResponseBase:
    replica = find_replica(name, n)
    parts = log_zip.of_replica(replica)
    audit.record(user_of(request), "log.downloaded", replica)
    return file_in_parts(parts, f"{replica.deployment.name}-replica-{replica.n}.zip", ZIP)


class NewShare(Strict):
    hours: int = Field(ge=log_shares.HOURS[0], le=log_shares.HOURS[-1], description="How long it works")
    log: str = Field(default="", max_length=40, description="Id of an attempt or a start; none: the newest")


@router.get("/jobs/{int:job_id}/shares", summary="Links to its logs")
def job_shares(request: HttpRequest, job_id: int) -> HttpResponse:
    return Answer({"shares": [log_shares.as_json(one) for one in log_shares.of_job(find_job(job_id))]})


@router.post("/jobs/{int:job_id}/shares", summary="Make a link to its log, shown once", response={201: dict[str, Any]})
def share_job(request: HttpRequest, job_id: int, new: NewShare) -> HttpResponse:
    return _share(request, find_attempt(find_job(job_id), new.log), new.hours)


@router.get("/deployments/{name}/replicas/{int:n}/shares", summary="Links to its logs")
def replica_shares(request: HttpRequest, name: str, n: int) -> HttpResponse:
    return Answer({"shares": [log_shares.as_json(one) for one in log_shares.of_replica(find_replica(name, n))]})


@router.post("/deployments/{name}/replicas/{int:n}/shares", summary="Make a link to its log, shown once",
             response={201: dict[str, Any]})  # fmt: skip
def share_replica(request: HttpRequest, name: str, n: int, new: NewShare) -> HttpResponse:
    return _share(request, engine_logs.find(find_replica(name, n), new.log), new.hours)


def _share(request: HttpRequest, head: Attempt | EngineLog | None, hours: int) -> HttpResponse:
    """Never kept for an Idempotency-Key: the token would be."""
    if head is None:
        raise NotFound(_("There is no such log."), _("Leave `log` out for the newest."), code="no_such_log")
    made = log_shares.make(head, hours, by=user_of(request))
    response = Answer({**log_shares.as_json(made.share), "url": request.build_absolute_uri(made.path)}, status=201)
    response.headers["Cache-Control"] = "no-store"
    return response


@router.delete("/log-shares/{int:share_id}", summary="Withdraw a link")
def revoke_share(request: HttpRequest, share_id: int) -> HttpResponse:
    return Answer(log_shares.as_json(log_shares.revoke(log_shares.find(share_id), by=user_of(request))))
