"""REST: jobs. Routes stand above their views; `console.api` adds this router."""

from collections.abc import Callable
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from console.errors import NotFound
from console.idempotency import answer_once
from deployments import kinds
from deployments.agent_api import router as agent_router
from deployments.asked import Strict, find_server, user_of
from deployments.batch_api import router as batch_router
from deployments.benchmark_api import router as benchmark_router
from deployments.campaign_api import router as campaign_router
from deployments.deployment_api import router as deployment_router
from deployments.evaluation_api import router as evaluation_router
from deployments.gateway_api import router as gateway_router
from deployments.guard_api import router as guard_router
from deployments.host_api import router as host_router
from deployments.inventory_api import router as inventory_router
from deployments.log_answers import range_as_text
from deployments.log_api import router as log_router
from deployments.log_search_api import router as log_search_router
from deployments.model_api import router as model_router
from deployments.models import Attempt, Job, JobState
from deployments.models_in_api import router as models_in_router
from deployments.placement_api import router as placement_router
from deployments.quantize_api import router as quantize_router
from deployments.services import (
    approvals,
    approving,
    jobs,
    package_sources,
    stacks,
    waiting,
    wheel_bundles,
)
from deployments.serving_api import router as serving_router
from deployments.storage_api import router as storage_router
from deployments.support_api import router as support_router

router = Router(tags=["jobs"])
router.add_router("", batch_router)
router.add_router("", benchmark_router)
router.add_router("", campaign_router)
router.add_router("", inventory_router)
router.add_router("", agent_router)
router.add_router("", storage_router)
router.add_router("", guard_router)
router.add_router("", host_router)
router.add_router("", evaluation_router)
router.add_router("", quantize_router)
router.add_router("", model_router)
router.add_router("", models_in_router)
router.add_router("", serving_router)
router.add_router("", deployment_router)
router.add_router("", log_router)
router.add_router("", log_search_router)
router.add_router("", placement_router)
router.add_router("", gateway_router)
router.add_router("", support_router)


class NewJob(Strict):
    kind: str = Field(max_length=40, description="Name of the job kind, for example `check`")
    server: str = Field(max_length=63, description="Name of the server")
    params: dict[str, Any] = Field(default_factory=dict, description="Parameters of the kind")
    ticket: str = Field(default="", max_length=100, description="Number of the ticket that asked for it")
    wait: bool = Field(default=True, description="false: refuse the job where it would have to wait for another")


class NewWish(Strict):
    stack: str = Field(max_length=63, description="Name of the stack; empty takes the wish away")
    servers: list[str] = Field(max_length=2000, description="Names of the servers that are to have it")


class Approval(Strict):
    note: str = Field(default="", max_length=approving.MOST_NOTE)


class Rejection(Strict):
    note: str = Field(max_length=approving.MOST_NOTE, description="Why")


class JobFilter(Schema):
    state: JobState | None = None
    kind: str | None = Field(default=None, max_length=40)
    server: str | None = Field(default=None, max_length=63)
    ticket: str | None = Field(default=None, max_length=100)
    before: int | None = Field(default=None, ge=1, description="Jobs older than this id, for the next page")
    limit: int = Field(default=50, ge=1, le=200)


@router.get("/kinds", summary="Job kinds and their parameters")
def list_kinds(request: HttpRequest) -> HttpResponse:
    return Answer({"kinds": [kinds.describe(name) for name in kinds.names()]})


@router.post("/jobs", summary="Queue a job", response={201: dict[str, Any]})
def create(request: HttpRequest, new: NewJob) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        server, by = find_server(new.server), user_of(request)
        job = jobs.queue_job(server, new.kind, new.params, by=by, ticket=new.ticket, wait=new.wait)
        return 201, jobs.as_json(job)

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.get("/jobs", summary="Jobs, newest first")
def list_jobs(request: HttpRequest, wanted: Query[JobFilter]) -> HttpResponse:
    same = {"state": wanted.state, "kind": wanted.kind, "server__name": wanted.server, "ticket": wanted.ticket}
    found = _jobs().filter(**{name: value for name, value in same.items() if value is not None})
    if wanted.before:
        found = found.filter(pk__lt=wanted.before)
    page = list(found[: wanted.limit])
    following = page[-1].pk if len(page) == wanted.limit else None
    waits = waiting.explain(page)
    return Answer({"jobs": [jobs.as_json(job, waits.get(job.pk)) for job in page], "before": following})


@router.get("/jobs/{int:job_id}", summary="One job with its steps and report")
def show(request: HttpRequest, job_id: int) -> HttpResponse:
    job = _job(job_id)
    attempt = job.attempts.last()
    more = {"approval": approvals.as_json(job), "attempt": _attempt(attempt) if attempt else None}
    return Answer({**jobs.as_json(job), **more})


@router.get("/jobs/{int:job_id}/log", summary="Lines of the newest attempt's log as text")
def log(request: HttpRequest, job_id: int, after: int = 0, limit: int = 1000) -> HttpResponse:
    return range_as_text(_job(job_id).attempts.last(), after, limit)


@router.post("/jobs/{int:job_id}/cancel", summary="Cancel a job", response={202: dict[str, Any]})
def cancel(request: HttpRequest, job_id: int) -> HttpResponse:
    job = jobs.cancel_job(_job(job_id), by=user_of(request))
    return Answer(jobs.as_json(job), status=202)


@router.post("/jobs/{int:job_id}/retry", summary="Run an ended job again", response={201: dict[str, Any]})
def retry(request: HttpRequest, job_id: int) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        return 201, jobs.as_json(jobs.retry_job(_job(job_id), by=user_of(request)))

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.post(
    "/jobs/{int:job_id}/approve", summary="Let a job go that waits for a second person", response={202: dict[str, Any]}
)
def approve(request: HttpRequest, job_id: int, given: Approval | None = None) -> HttpResponse:
    return _decide(request, job_id, approving.approve, given.note if given else "")


@router.post("/jobs/{int:job_id}/reject", summary="End such a job", response={202: dict[str, Any]})
def reject(request: HttpRequest, job_id: int, given: Rejection) -> HttpResponse:
    return _decide(request, job_id, approving.reject, given.note)


def _decide(request: HttpRequest, job_id: int, act: Callable[..., Job], note: str) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        job = act(_job(job_id), by=user_of(request), note=note)
        return 202, {**jobs.as_json(job), "approval": approvals.as_json(job)}

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.post("/stack-wishes", tags=["stacks"], summary="Say which stack servers are to have")
def wish_stack(request: HttpRequest, new: NewWish) -> HttpResponse:
    changed = stacks.wish(new.servers, new.stack, by=user_of(request))
    return Answer({"stack": new.stack or None, "changed": sorted(server.name for server in changed)})


@router.get("/bundles", tags=["stacks"], summary="Offline bundles that the console hands to servers")
def list_bundles(request: HttpRequest) -> HttpResponse:
    rows = [
        {"name": one.name, "stack": one.stack, "arch": one.arch, "python": one.python, "size": one.size,
         "wheels": len(one.manifest["files"]), "packages": one.package_names, "digest": one.digest}
        for one in wheel_bundles.present()
    ]  # fmt: skip
    return Answer({"bundles": rows})


@router.get("/package-sources", tags=["stacks"], summary="The site's indexes, their authority and logins, masked")
def show_sources(request: HttpRequest) -> HttpResponse:
    return Answer(package_sources.as_json())


def _jobs() -> QuerySet[Job]:
    return Job.objects.select_related("server", "requester")


def _job(job_id: int) -> Job:
    job = _jobs().filter(pk=job_id).first() if job_id < 2**63 else None
    if job is None:
        raise NotFound(_("There is no job #%(id)s.") % {"id": job_id}, _("GET /api/v1/jobs lists them."))
    return job


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "id": attempt.pk,
        "n": attempt.n,
        "state": attempt.state,
        "lines": attempt.next_line - 1,
        "complete": attempt.done,
        "bytes": attempt.kept_bytes,
        "log_deleted_at": attempt.pruned_at.isoformat() if attempt.pruned_at else None,
        "exit_code": attempt.exit_code,
        "steps": list(
            attempt.steps.values(
                "n", "title_zh", "title_en", "argv", "state", "exit_code", "first_line", "started_at", "ended_at"
            )
        ),
        "report": attempt.report,
    }
