"""REST: logs of several servers as one."""

from django.http import HttpRequest, HttpResponse
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from deployments.batch_api import find_batch
from deployments.services import deployments, merged_logs
from deployments.services.logs import MAX_LINES
from deployments.services.merged_logs import MOST_TEXT, Many, Wanted

router = Router(tags=["logs"])


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
