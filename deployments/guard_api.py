"""REST: keys of servers, queues, switching a server on again, and sending agents to another address."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from console.errors import Invalid
from console.idempotency import answer_once
from console.language import pick
from deployments.asked import Strict, find_server, user_of
from deployments.models import Order, Rotation, Server
from deployments.services import jobs, queue_page, quota, repoint, rotation, selection

router = Router(tags=["servers"])


# ---------- keys ----------


class Keys(Strict):
    servers: list[str] = Field(max_length=selection.MOST_SERVERS, description="Names of those that get new keys")


@router.get("/keys", summary="How old the keys of each real server are, and which are being changed")
def list_keys(request: HttpRequest) -> HttpResponse:
    rotation.check_may(user_of(request))
    rows = Server.objects.present().filter(simulated=False).defer("facts").select_related("rotation").order_by("name")
    return Answer({"servers": [_keys(row) for row in rows]})


@router.post("/keys", summary="New keys for several servers", response={202: dict[str, Any]})
def change_keys(request: HttpRequest, wanted: Keys) -> HttpResponse:
    by = user_of(request)
    rotation.check_may(by)

    def make() -> tuple[int, dict[str, Any]]:
        chosen, problems = selection.find(selection.Asked(names=_named(wanted.servers), fleet="both"))
        begun, refused = rotation.start_all(chosen, by=by)
        return 202, {
            "servers": [_keys(made.server) for made in begun],
            "refused": [{"server": row.name, "code": why.code, "what": why.what, "do": why.do} for row, why in refused],
            "problems": problems,
        }

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.post("/servers/{name}/keys", summary="New keys for one server", response={202: dict[str, Any]})
def change_keys_of_one(request: HttpRequest, name: str) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        return 202, _keys(rotation.start(find_server(name), by=user_of(request)).server)

    status, body = answer_once(request, make)
    return Answer(body, status=status)


def _named(names: list[str]) -> list[str]:
    """Raises Invalid for none: an empty selection would be every server."""
    if not names:
        raise Invalid(_("No server was chosen."), _("Choose those that are to get new keys."), code="no_server")
    return [name[:63] for name in names]


def _keys(server: Server) -> dict[str, Any]:
    """`phase` is null where nothing is under way."""
    under_way: Rotation | None = getattr(server, "rotation", None)
    return {
        "server": server.name,
        "changed_at": server.keys_changed_at.isoformat() if server.keys_changed_at else None,
        "phase": under_way.phase if under_way else None,
    }


# ---------- queues ----------


class QueueFilter(Schema):
    every: bool = Field(default=False, description="Also servers where nothing is queued, runs or is held")
    find: str = Field(default="", max_length=63, description="Part of the name")
    page: int = Field(default=1, ge=1, le=100_000_000)


@router.get("/queue", summary="Each server's queue, why its jobs wait, and the console's own", tags=["jobs"])
def list_queues(request: HttpRequest, wanted: Query[QueueFilter]) -> HttpResponse:
    jobs.check_may_operate(user_of(request))
    found = queue_page.page(every=wanted.every, word=wanted.find, number=wanted.page)
    return Answer(
        {
            "servers": [queue_page.line_json(line) for line in found.lines],
            "page": found.number,
            "pages": found.last,
            "matching": found.shown,
            "console": queue_page.own_json(found.own),
        }
    )


@router.post("/servers/{name}/switch-on", summary="Let a server back into Redis that was switched off")
def switch_on(request: HttpRequest, name: str) -> HttpResponse:
    server = quota.switch_on(find_server(name), by=user_of(request))
    return Answer({"name": server.name, "switched_off": server.cut_off_at is not None})


# ---------- addresses of agents ----------


class Addresses(Strict):
    redis: list[str] = Field(max_length=50, description="rediss://host:6380/0, the one to be tried first on top")
    console: str = Field(default="", max_length=300, description="https://host:port of the pages, where they move too")
    pin: str = Field(default="", max_length=80, description="sha256//… of the key behind it")
    ca: str = Field(default="", max_length=70_000, description="PEM of the authority of Redis there")
    servers: list[str] | None = Field(
        default=None, max_length=selection.MOST_SERVERS, description="Names; left out: all that have joined"
    )
    dry_run: bool = Field(default=False, description="Only say whom it would hit")


@router.get("/agents/addresses", summary="The newest order of each agent, and its answer", tags=["agents"])
def list_addresses(request: HttpRequest) -> HttpResponse:
    repoint.check_may(user_of(request))
    return Answer({"orders": [_order(order) for order in repoint.newest()]})


@router.post(
    "/agents/addresses", summary="Send agents to another address", response={202: dict[str, Any]}, tags=["agents"]
)
def send_elsewhere(request: HttpRequest, wanted: Addresses) -> HttpResponse:
    by = user_of(request)
    repoint.check_may(by)

    def make() -> tuple[int, dict[str, Any]]:
        names = None if wanted.servers is None else [name[:63] for name in wanted.servers]
        wished = repoint.read(wanted.redis, wanted.console, wanted.pin, wanted.ca)
        hit = repoint.preview(names)
        sent = [] if wanted.dry_run else repoint.start(hit, wished, by=by)
        return 202, {
            "servers": [server.name for server in hit.servers],
            "left_out": [{"server": server.name, "why": why} for server, why in hit.left_out],
            "problems": hit.problems,
            "sent": len(sent),
        }

    status, body = answer_once(request, make)
    return Answer(body, status=status)


def _order(order: Order) -> dict[str, Any]:
    return {
        "server": order.server.name,
        "redis": order.args.get("redis"),  # emptied when it ends
        "state": order.state,
        "words": pick(order.answer),
        "by": order.made_by.username if order.made_by else None,
        "sent_at": order.created_at.isoformat(),
        "answered_at": order.answered_at.isoformat() if order.answered_at else None,
    }
