"""REST: batches, and the queue and maintenance of a server."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from console.errors import NotFound
from console.idempotency import answer_once
from console.models import User
from deployments.asked import Strict, find_server, user_of
from deployments.models import Batch, BatchState, Server
from deployments.services import batches, jobs, selection, servers

router = Router(tags=["batches"])


class Selection(Strict):
    names: list[str] = Field(default_factory=list, max_length=selection.MOST_SERVERS, description="Names of servers")
    racks: list[str] = Field(default_factory=list, max_length=200)
    families: list[str] = Field(default_factory=list, max_length=50)
    find: str = Field(default="", max_length=100, description="Words of name, family, rack or labels; all must occur")
    fleet: str = Field(default="real", max_length=20, description="real, simulated or both: they mix only when told to")


class NewBatch(Strict):
    kind: str = Field(max_length=40)
    params: dict[str, Any] = Field(default_factory=dict)
    select: Selection = Field(description="Which servers; what is left out excludes nothing")
    canary: int = Field(default=1, ge=0, le=100, description="Servers that go first, alone; 0 for none")
    wave: int = Field(default=10, ge=1, le=selection.MOST_SERVERS, description="At most so many servers at once")
    stop_after: int = Field(default=1, ge=1, le=selection.MOST_SERVERS, description="Failures after which it stops")
    spread: bool = Field(default=True, description="Never two servers of one rack in a wave")
    ticket: str = Field(default="", max_length=100)
    dry_run: bool = Field(default=False, description="Only answer which servers it would hit, in which waves")


class BatchFilter(Schema):
    state: BatchState | None = None
    ticket: str | None = Field(default=None, max_length=100)
    before: int | None = Field(default=None, ge=1, description="Batches older than this id, for the next page")
    limit: int = Field(default=50, ge=1, le=200)


@router.post("/batches", summary="Start a batch: the same job on several servers", response={201: dict[str, Any]})
def create(request: HttpRequest, new: NewBatch) -> HttpResponse:
    asked = selection.Asked(**new.select.dict())
    plan = batches.Plan(new.canary, new.wave, new.stop_after, new.spread)
    if new.dry_run:
        return Answer(_dry(new, asked, plan))

    def make() -> tuple[int, dict[str, Any]]:
        batch = batches.start(new.kind, new.params, asked, plan, by=user_of(request), ticket=new.ticket)
        return 201, batches.as_json(batch)

    status, body = answer_once(request, make)
    return Answer(body, status=status)


def _dry(new: NewBatch, asked: selection.Asked, plan: batches.Plan) -> dict[str, Any]:
    module = jobs.find_kind(new.kind)
    jobs.checked_params(module, new.params)
    found, problems = selection.find(asked)
    placed = selection.waves(found, canary=plan.canary, size=plan.size, spread=plan.spread)
    return {
        "servers": len(found),
        "silent": [server.name for server in found if server.is_offline],
        "simulated": sum(server.simulated for server in found),
        "waves": [
            {"wave": n, "servers": [server.name for server in part]} for n, part in selection.grouped(found, placed)
        ],
        "problems": problems,
    }


@router.get("/batches", summary="Batches, newest first")
def list_batches(request: HttpRequest, wanted: Query[BatchFilter]) -> HttpResponse:
    rows = Batch.objects.select_related("requester")
    if wanted.state:
        rows = rows.filter(state=wanted.state)
    if wanted.ticket is not None:
        rows = rows.filter(ticket=wanted.ticket)
    if wanted.before:
        rows = rows.filter(pk__lt=wanted.before)
    page = list(rows[: wanted.limit])
    counts = batches.counts_of(page)
    following = page[-1].pk if len(page) == wanted.limit else None
    return Answer({"batches": [batches.as_json(batch, counts[batch.pk]) for batch in page], "before": following})


@router.get("/batches/{int:batch_id}", summary="One batch with its jobs")
def show(request: HttpRequest, batch_id: int) -> HttpResponse:
    batch = find_batch(batch_id)
    rows = batch.jobs.order_by("wave", "server__name").values_list("pk", "server__name", "wave", "state")
    made = [{"id": pk, "server": name, "wave": wave, "state": state} for pk, name, wave, state in rows]
    return Answer({**batches.as_json(batch), "members": made})


def _act(request: HttpRequest, batch_id: int, act: Callable[[Batch, User], Batch]) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        return 202, batches.as_json(act(find_batch(batch_id), user_of(request)))

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.post("/batches/{int:batch_id}/pause", summary="Begin no further wave", response={202: dict[str, Any]})
def pause(request: HttpRequest, batch_id: int) -> HttpResponse:
    return _act(request, batch_id, lambda batch, by: batches.pause(batch, by=by))


@router.post("/batches/{int:batch_id}/resume", summary="Go on, failures forgiven", response={202: dict[str, Any]})
def resume(request: HttpRequest, batch_id: int) -> HttpResponse:
    return _act(request, batch_id, lambda batch, by: batches.resume(batch, by=by))


class Stop(Strict):
    cancel_running: bool = Field(default=False, description="Cancel also what runs or waits")


@router.post("/batches/{int:batch_id}/stop", summary="Cancel what has not begun", response={202: dict[str, Any]})
def stop(request: HttpRequest, batch_id: int, how: Stop | None = None) -> HttpResponse:
    cancel = bool(how and how.cancel_running)
    return _act(request, batch_id, lambda batch, by: batches.stop(batch, by=by, cancel_running=cancel))


@router.post("/batches/{int:batch_id}/retry", summary="Run the failed ones again", response={202: dict[str, Any]})
def retry(request: HttpRequest, batch_id: int) -> HttpResponse:
    return _act(request, batch_id, lambda batch, by: batches.retry_failed(batch, by=by))


class Queue(Strict):
    paused: bool
    reason: str = Field(default="", max_length=200)


@router.post("/servers/{name}/queue", summary="Pause or resume a server's queue", tags=["servers"])
def queue(request: HttpRequest, name: str, wanted: Queue) -> HttpResponse:
    server, by = find_server(name), user_of(request)
    if wanted.paused:
        server = servers.pause_queue(server, by=by, reason=wanted.reason)
    else:
        server = servers.resume_queue(server, by=by)
    return Answer(_queue(server))


class Maintenance(Strict):
    maintenance: bool
    reason: str = Field(default="", max_length=200)
    ticket: str = Field(default="", max_length=100)


@router.post("/servers/{name}/maintenance", summary="Begin or end a server's maintenance", tags=["servers"])
def maintenance(request: HttpRequest, name: str, wanted: Maintenance) -> HttpResponse:
    more = {"reason": wanted.reason, "ticket": wanted.ticket}
    return Answer(_queue(servers.set_maintenance(find_server(name), wanted.maintenance, by=user_of(request), **more)))


def _queue(server: Server) -> dict[str, Any]:
    by = server.queue_paused_by
    return {
        "name": server.name,
        "maintenance": server.maintenance,
        "queue_paused": server.queue_paused,
        "reason": server.queue_paused_reason,
        "by": by.username if by else None,
    }


def find_batch(batch_id: int) -> Batch:
    """Raises NotFound."""
    batch = Batch.objects.select_related("requester").filter(pk=batch_id).first() if batch_id < 2**63 else None
    if batch is None:
        raise NotFound(_("There is no batch #%(id)s.") % {"id": batch_id}, _("GET /api/v1/batches lists them."))
    return batch
