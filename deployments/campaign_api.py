"""REST: campaigns."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from console.idempotency import answer_once
from console.models import User
from deployments.asked import Strict, user_of
from deployments.batch_api import Selection, Stop
from deployments.models import Campaign, CampaignState
from deployments.services import batches, campaign_held, campaign_json, campaigns, jobs, selection
from deployments.services.campaign_rings import MOST_AT_ONCE, MOST_SOAK_MIN, Order

router = Router(tags=["campaigns"])


class Rings(Strict):
    canary: int = Field(default=1, ge=0, le=100, description="Servers that go first, alone; 0 for none")
    by: str = Field(default="size", max_length=20, description="size, rack or label")
    size: int = Field(default=20, ge=1, le=selection.MOST_SERVERS, description="Servers, or racks, of a ring")
    label: str = Field(default="", max_length=63, description="Name of the label that makes the rings")
    values: list[str] = Field(default_factory=list, max_length=50, description="Its values that go first, in order")
    at_once: int = Field(default=10, ge=1, le=MOST_AT_ONCE, description="At most so many servers of a ring at once")
    spread: bool = Field(default=True, description="Never two servers of one rack at once")
    soak_min: int = Field(default=60, ge=0, le=MOST_SOAK_MIN, description="Minutes that must pass well after a ring")
    stop_after: int = Field(default=1, ge=1, le=selection.MOST_SERVERS, description="Failures after which it stops")


class NewCampaign(Strict):
    stack: str = Field(max_length=63, description="Name of the stack that the servers are to have")
    params: dict[str, str] = Field(default_factory=dict, description="Choices of the kind `install`: route, index, …")
    select: Selection = Field(description="Which servers; what is left out excludes nothing")
    rings: Rings = Field(default_factory=Rings)
    why: str = Field(default="", max_length=campaigns.MOST_NOTE)
    ticket: str = Field(default="", max_length=100)
    seen: str | None = Field(default=None, max_length=64, description="Digest of the dry run; another plan is refused")
    dry_run: bool = Field(default=False, description="Only answer what it would do on each server")


class CampaignFilter(Schema):
    state: CampaignState | None = None
    stack: str | None = Field(default=None, max_length=63)
    before: int | None = Field(default=None, ge=1, description="Campaigns older than this id, for the next page")
    limit: int = Field(default=50, ge=1, le=200)


class Approval(Strict):
    seen: str = Field(max_length=64, description="The digest of what is approved")
    note: str = Field(default="", max_length=campaigns.MOST_NOTE)


class Rejection(Strict):
    note: str = Field(max_length=campaigns.MOST_NOTE)


class Seen(Strict):
    seen: str = Field(max_length=64, description="`held_digest` of the campaign")


@router.post("/campaigns", summary="Ask for a campaign: a stack for many servers", response={201: dict[str, Any]})
def create(request: HttpRequest, new: NewCampaign) -> HttpResponse:
    asked, order = selection.Asked(**new.select.dict()), Order(**new.rings.dict())
    by = user_of(request)
    if new.dry_run:
        jobs.check_may_operate(by)
        table, params = campaigns.planned(new.stack, new.params, asked, order)
        return Answer(campaign_json.dry(table, params, order))

    def make() -> tuple[int, dict[str, Any]]:
        more = {"ticket": new.ticket, "why": new.why, "seen": new.seen}
        made = campaigns.ask(new.stack, new.params, asked, order, by=by, **more)  # type: ignore[arg-type]
        return 201, campaign_json.whole(campaigns.find(made.pk))

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.get("/campaigns", summary="Campaigns, newest first")
def list_campaigns(request: HttpRequest, wanted: Query[CampaignFilter]) -> HttpResponse:
    rows = Campaign.objects.select_related("requester", "decided_by", "batch")
    if wanted.state:
        rows = rows.filter(state=wanted.state)
    if wanted.stack is not None:
        rows = rows.filter(stack=wanted.stack)
    if wanted.before:
        rows = rows.filter(pk__lt=wanted.before)
    page = list(rows[: wanted.limit])
    following = page[-1].pk if len(page) == wanted.limit else None
    return Answer({"campaigns": [campaign_json.brief(row) for row in page], "before": following})


@router.get("/campaigns/{int:campaign_id}", summary="One campaign with every server")
def show(request: HttpRequest, campaign_id: int) -> HttpResponse:
    return Answer(campaign_json.whole(campaigns.find(campaign_id)))


def _act(request: HttpRequest, campaign_id: int, act: Callable[[Campaign, User], object]) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        act(campaigns.find(campaign_id), user_of(request))
        return 202, campaign_json.brief(campaigns.find(campaign_id))

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.post("/campaigns/{int:campaign_id}/approve", summary="Approve it and begin", response={202: dict[str, Any]})
def approve(request: HttpRequest, campaign_id: int, given: Approval) -> HttpResponse:
    return _act(
        request, campaign_id, lambda row, by: campaigns.approve(row, by=by, seen=given.seen, note=given.note)
    )  # fmt: skip


@router.post("/campaigns/{int:campaign_id}/reject", summary="Reject it", response={202: dict[str, Any]})
def reject(request: HttpRequest, campaign_id: int, given: Rejection) -> HttpResponse:
    return _act(request, campaign_id, lambda row, by: campaigns.reject(row, by=by, note=given.note))


@router.post("/campaigns/{int:campaign_id}/withdraw", summary="Take it back", response={202: dict[str, Any]})
def withdraw(request: HttpRequest, campaign_id: int) -> HttpResponse:
    return _act(request, campaign_id, lambda row, by: campaigns.withdraw(row, by=by))


@router.post("/campaigns/{int:campaign_id}/pause", summary="Begin no further wave", response={202: dict[str, Any]})
def pause(request: HttpRequest, campaign_id: int) -> HttpResponse:
    return _act(request, campaign_id, lambda row, by: batches.pause(campaigns.batch_of(row), by=by))


@router.post("/campaigns/{int:campaign_id}/resume", summary="Go on", response={202: dict[str, Any]})
def resume(request: HttpRequest, campaign_id: int) -> HttpResponse:
    return _act(request, campaign_id, lambda row, by: batches.resume(campaigns.batch_of(row), by=by))


@router.post("/campaigns/{int:campaign_id}/stop", summary="Cancel what has not begun", response={202: dict[str, Any]})
def stop(request: HttpRequest, campaign_id: int, how: Stop | None = None) -> HttpResponse:
    cancel = bool(how and how.cancel_running)
    return _act(
        request, campaign_id, lambda row, by: batches.stop(campaigns.batch_of(row), by=by, cancel_running=cancel)
    )  # fmt: skip


@router.post("/campaigns/{int:campaign_id}/retry", summary="Run the failed ones again", response={202: dict[str, Any]})
def retry(request: HttpRequest, campaign_id: int) -> HttpResponse:
    return _act(request, campaign_id, lambda row, by: batches.retry_failed(campaigns.batch_of(row), by=by))


@router.post(
    "/campaigns/{int:campaign_id}/held/approve", summary="Approve the new plans of those held back",
    response={202: dict[str, Any]},
)  # fmt: skip
def approve_held(request: HttpRequest, campaign_id: int, given: Seen) -> HttpResponse:
    return _act(request, campaign_id, lambda row, by: campaign_held.approve_held(row, by=by, seen=given.seen))


@router.post(
    "/campaigns/{int:campaign_id}/held/leave-out", summary="Leave out those held back", response={202: dict[str, Any]}
)
def leave_out(request: HttpRequest, campaign_id: int) -> HttpResponse:
    return _act(request, campaign_id, lambda row, by: campaign_held.leave_out(row, by=by))
