"""REST: history, drain, cordon, decommissioning and bulk edits of servers, and saved filters."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import Field, Router

from console.answers import Answer
from console.errors import NotFound
from console.models import User
from deployments.asked import Strict, find_server, user_of
from deployments.log_answers import range_as_text
from deployments.models import SavedFilter, Server
from deployments.services import (
    agent_logs,
    cleanup,
    filters,
    history,
    inventory,
    lifecycle,
    selection,
    servers,
)

router = Router(tags=["servers"])


class Drain(Strict):
    drain: bool
    reason: str = Field(default="", max_length=200)
    ticket: str = Field(default="", max_length=100)


class Cordon(Strict):
    bus_id: str = Field(max_length=40, description="As npu-smi prints it, for example `0000:C1:00.0`")
    cordon: bool
    reason: str = Field(default="", max_length=200)
    ticket: str = Field(default="", max_length=100)


class Decommission(Strict):
    confirm: str = Field(max_length=63, description="The server's name once more")
    reason: str = Field(default="", max_length=200)
    ticket: str = Field(default="", max_length=100)


class BulkEdit(Strict):
    names: list[str] = Field(default_factory=list, max_length=2000)
    find: str = Field(default="", max_length=200, description="Words of name, family, rack, site or labels")
    fleet: str = Field(default="real", max_length=20, description="real, simulated or both")
    add_labels: dict[str, str] = Field(default_factory=dict)
    remove_labels: list[str] = Field(default_factory=list, max_length=40)
    site: str | None = None
    rack: str | None = None
    ticket: str = Field(default="", max_length=100)
    dry_run: bool = Field(default=False, description="Only say what would change")


class Undo(Strict):
    ticket: str = Field(default="", max_length=100)


class NewFilter(Strict):
    name: str = Field(max_length=60)
    query: str = Field(max_length=1000, description="What stands behind “?” in the address of the fleet page")
    shared: bool = False


@router.get("/servers/{name}/cleanup", summary="What the newest look has found that may be cleaned up")
def show_cleanup(request: HttpRequest, name: str) -> HttpResponse:
    """Look by a job of the kind `cleanup_look`; remove by one of `cleanup` with `targets` and `seen` of this answer."""
    return Answer(cleanup.as_json(cleanup.newest(find_server(name))))


@router.get("/servers/{name}/agent-log", summary="Lines of the log of a server's agent as text")
def agent_log(
    request: HttpRequest, name: str, piece: str = "", after: int | None = None, limit: int = 500
) -> HttpResponse:
    """Without `after` the last lines; `X-Next-After` goes on from there."""
    return range_as_text(agent_logs.find(find_server(name), piece), after, limit)


@router.get("/servers/gone", summary="Servers that were decommissioned")
def list_gone(request: HttpRequest) -> HttpResponse:
    rows = Server.objects.exclude(decommissioned_at=None).order_by("-decommissioned_at").defer("facts", "notes")
    return Answer({"servers": [gone_json(row) for row in rows[:1000]]})


def gone_json(row: Server) -> dict[str, Any]:
    return {
        "id": row.pk,
        "name": row.name,
        "simulated": row.simulated,
        "site": row.site,
        "rack": row.rack,
        "family": row.family,
        "decommissioned_at": row.decommissioned_at.isoformat() if row.decommissioned_at else None,
    }


@router.post("/servers/edit", summary="Change labels, rack or site of many servers")
def edit_many(request: HttpRequest, wanted: BulkEdit) -> HttpResponse:
    bulk = inventory.clean_bulk(
        inventory.Bulk(wanted.add_labels, wanted.remove_labels, wanted.site, wanted.rack)
    )  # fmt: skip
    if not wanted.names and not wanted.find:
        raise NotFound(_("No server was chosen."), _("Send “names” or “find”."), code="no_selection")
    found, problems = selection.find(selection.Asked(names=wanted.names, find=wanted.find, fleet=wanted.fleet))
    changes = [
        {"server": hit.server.name, "changes": {name: [old, new] for name, old, new in hit.changes}}
        for hit in inventory.plan(found, bulk)
        if hit.changes
    ]
    change_set = None
    if not wanted.dry_run:
        change_set, _n = inventory.edit_many(found, bulk, by=user_of(request), ticket=wanted.ticket)
    return Answer({"servers": len(found), "changed": changes, "problems": problems, "change_set": change_set})


@router.post("/changes/{change_set}/undo", summary="Take edits back that were made together")
def undo(request: HttpRequest, change_set: str, wanted: Undo) -> HttpResponse:
    done, left = inventory.undo(change_set[:16], by=user_of(request), ticket=wanted.ticket)
    return Answer({"undone": done, "problems": left})


@router.get("/servers/{name}/history", summary="What changed about a server, newest first")
def server_history(request: HttpRequest, name: str, before: int | None = None, limit: int = 50) -> HttpResponse:
    rows, following = history.page(find_server(name), before, max(1, min(limit, 200)))
    return Answer({"changes": [history.as_json(row) for row in rows], "before": following})


@router.post("/servers/{name}/drain", summary="Begin or end the drain of a server")
def drain(request: HttpRequest, name: str, wanted: Drain) -> HttpResponse:
    server, by = find_server(name), user_of(request)
    if wanted.drain:
        server = servers.drain(server, by=by, reason=wanted.reason, ticket=wanted.ticket)
    else:
        server = servers.end_drain(server, by=by, ticket=wanted.ticket)
    return Answer(switches_json(server))


@router.post("/servers/{name}/cordon", summary="Cordon one NPU of a server, or end its cordon")
def cordon(request: HttpRequest, name: str, wanted: Cordon) -> HttpResponse:
    server, by = find_server(name), user_of(request)
    if wanted.cordon:
        server = servers.cordon(server, wanted.bus_id, by=by, reason=wanted.reason, ticket=wanted.ticket)
    else:
        server = servers.uncordon(server, wanted.bus_id, by=by, ticket=wanted.ticket)
    return Answer(switches_json(server))


@router.post("/servers/{name}/decommission", summary="Take a server out of the fleet", response={202: dict[str, Any]})
def decommission(request: HttpRequest, name: str, wanted: Decommission) -> HttpResponse:
    server = lifecycle.decommission(
        find_server(name), wanted.confirm, by=user_of(request), reason=wanted.reason, ticket=wanted.ticket
    )
    return Answer({**gone_json(server), "state": "decommissioned" if server.is_gone else "leaving"}, status=202)


def switches_json(server: Server) -> dict[str, Any]:
    """What holds jobs back from a server."""
    return {
        "name": server.name,
        "maintenance": server.maintenance,
        "queue_paused": server.queue_paused,
        "drain": servers.drain_word(server),
        "drain_reason": server.drain_reason,
        "cordons": server.cordons,
        "quarantine": server.quarantine,
    }


# ---------- saved filters ----------


@router.get("/filters", summary="Filters of the fleet that you keep, and those that others share", tags=["fleet"])
def list_filters(request: HttpRequest) -> HttpResponse:
    by = user_of(request)
    return Answer({"filters": [filter_json(row, by) for row in filters.visible_to(by)[:500]]})


@router.post("/filters", summary="Keep a filter of the fleet", response={201: dict[str, Any]}, tags=["fleet"])
def save_filter(request: HttpRequest, new: NewFilter) -> HttpResponse:
    by = user_of(request)
    return Answer(filter_json(filters.save(new.name, new.query, shared=new.shared, by=by), by), status=201)


@router.delete("/filters/{int:pk}", summary="Forget a filter", tags=["fleet"])
def delete_filter(request: HttpRequest, pk: int) -> HttpResponse:
    return Answer({"deleted": filters.delete(pk, by=user_of(request))})


def filter_json(row: SavedFilter, by: User) -> dict[str, Any]:
    return {
        "id": row.pk,
        "name": row.name,
        "query": row.query,
        "shared": row.shared,
        "owner": row.user.username,
        "mine": row.user_id == by.pk,
    }
