"""REST: the agents' versions, and their upgrade."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Field, Router

from console.answers import Answer
from console.idempotency import answer_once
from deployments.asked import Strict, user_of
from deployments.services import batches, jobs, selection, versions

router = Router(tags=["agents"])


class Upgrade(Strict):
    servers: list[str] | None = Field(
        default=None, max_length=selection.MOST_SERVERS, description="Names; left out: all that are behind"
    )
    canary: int = Field(default=1, ge=0, le=100, description="Servers that go first, alone; 0 for none")
    wave: int = Field(default=10, ge=1, le=selection.MOST_SERVERS, description="At most so many servers at once")
    stop_after: int = Field(default=1, ge=1, le=selection.MOST_SERVERS, description="Failures after which it stops")
    spread: bool = Field(default=True, description="Never two servers of one rack in a wave")
    ticket: str = Field(default="", max_length=100)


@router.get("/agents", summary="The version of each agent, and of the console's own copy")
def list_agents(request: HttpRequest) -> HttpResponse:
    wanted = versions.target()
    rows = versions.rows(wanted)
    return Answer(
        {
            "console": wanted._asdict(),
            "counts": [
                {
                    "version": one.version,
                    "code": one.code,
                    "protocol": one.protocol,
                    "state": one.state,
                    "servers": one.n,
                }
                for one in versions.counts(rows)
            ],
            "agents": [
                {
                    "server": row.server.name,
                    "simulated": row.server.simulated,
                    "version": row.server.agent_version or None,
                    "code": row.server.agent_code or None,
                    "protocol": row.server.agent_protocol if row.server.agent_version else None,
                    "state": row.state,
                }
                for row in rows
            ],
        }
    )


@router.post(
    "/agents/upgrade", summary="Bring agents to the console's version, as a batch", response={201: dict[str, Any]}
)
def upgrade(request: HttpRequest, new: Upgrade) -> HttpResponse:
    jobs.check_may_operate(user_of(request))
    plan = batches.Plan(new.canary, new.wave, new.stop_after, new.spread)

    def make() -> tuple[int, dict[str, Any]]:
        batch = versions.upgrade(versions.hit(new.servers), plan, by=user_of(request), ticket=new.ticket)
        return 201, batches.as_json(batch)

    status, body = answer_once(request, make)
    return Answer(body, status=status)
