"""Pages about one server as a thing: edit, history, drain, cordon, decommission; and those that are gone."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.errors import ConsoleError
from console.models import User
from deployments.models import Server, ServerChange
from deployments.services import history, inventory, lifecycle, servers, waiting
from deployments.views.lookup import check_may_operate, find_server, is_part, refusal_said, user_of

GONE_SHOWN = 500


# ---------- edit ----------


@require_http_methods(["GET", "POST"])
def server_edit(request: HttpRequest, name: str) -> HttpResponse:
    """GET shows the form, POST changes what differs, or shows the form again with what was typed."""
    check_may_operate(request)
    server = find_server(name)
    refusal: ConsoleError | None = None
    given = _given(server, request.POST) if request.method == "POST" else _as_is(server)
    if request.method == "POST":
        try:
            values = _typed(server, request.POST)
            inventory.edit(
                server, values, by=user_of(request), ticket=request.POST.get("ticket", ""),
                version=request.POST.get("version", ""),
            )  # fmt: skip
            messages.success(request, _("Saved. What was before stands in the history."))
            return redirect("monitoring:server-detail", name=server.name)
        except ConsoleError as error:
            refusal = error
            server.refresh_from_db()
    context = {
        "server": server,
        "given": given,
        "refusal": refusal,
        "version": request.POST.get("version") or inventory.version_of(server),
        "stale": refusal is not None and refusal.code == "changed_meanwhile",
        "fresh_version": inventory.version_of(server),
        "addresses": _addresses(server, request.POST if request.method == "POST" else None),
        "roles": [(role, role_word(role)) for role in inventory.ROLES],
    }
    return render(request, "deployments/server_edit.html", context, status=refusal.status if refusal else 200)


def role_word(role: str) -> str:
    words = {"management": _("management"), "service": _("service"), "bmc": _("BMC")}
    return words.get(role, "—")


def _as_is(server: Server) -> dict[str, str]:
    texts = {name: getattr(server, name) for name in inventory.LIMITS}
    return {**texts, "labels": inventory.label_words(server.labels), "new_address": ""}


def _given(server: Server, sent: QueryDict) -> dict[str, str]:
    return {name: sent.get(name, value) for name, value in {**_as_is(server), "ticket": ""}.items()}


def _addresses(server: Server, sent: QueryDict | None) -> list[dict[str, str]]:
    """Every known address with its role, as it is or as it was just chosen."""
    rows = inventory.guessed_roles(server)
    if sent is not None:
        rows = [{**row, "role": sent.get(f"role-{row['address']}", row["role"])} for row in rows]
    return [{**row, "word": role_word(row["role"])} for row in rows]


def _typed(server: Server, sent: QueryDict) -> dict[str, Any]:
    """What the form holds; "" as the role of an address leaves it to be guessed. Raises Invalid."""
    values: dict[str, Any] = {name: sent.get(name, "") for name in inventory.LIMITS if name in sent}
    if "labels" in sent:
        values["labels"] = inventory.read_labels(sent.get("labels", ""))
    roles = {}
    for row in inventory.guessed_roles(server):
        address = row["address"]
        role = sent.get(f"role-{address}", server.address_roles.get(address, ""))
        if role:
            roles[address] = role
    if added := sent.get("new_address", "").strip():
        roles[added] = sent.get("new_role", "bmc")
    return {**values, "address_roles": roles}


# ---------- history ----------


@require_GET
def server_history(request: HttpRequest, name: str) -> HttpResponse:
    """?before= is the id that the page before ended with."""
    server = find_server(name)
    before = request.GET.get("before", "")
    known = before.isascii() and before.isdigit() and len(before) < 19
    rows, following = history.page(server, int(before) if known else None)
    context = {
        "server": server,
        "rows": [change_row(row) for row in rows],
        "following": following,
        "newest": not before,
    }
    return render(request, "deployments/server_history.html", context)


def change_row(row: Any) -> dict[str, Any]:
    """One change as pages draw it."""
    return {
        "row": row,
        "title": history.title(row.field),
        "before": history.words(row.field, row.before),
        "after": history.words(row.field, row.after),
        "undoable": row.field in inventory.EDITABLE and row.undone_at is None,
    }


@require_POST
def change_undo(request: HttpRequest, change_set: str) -> HttpResponse:
    """Take back what was changed together; `back` is the name of the server whose history is shown then."""
    check_may_operate(request)
    with refusal_said(request):
        done, left = inventory.undo(change_set[:16], by=user_of(request), ticket=request.POST.get("ticket", ""))
        messages.success(request, _("Taken back: %(n)s.") % {"n": done})
        for sentence in left[:10]:
            messages.warning(request, sentence)
    server = Server.objects.filter(name=request.POST.get("back", "")[:63]).first()
    if server is None:
        return redirect("monitoring:server-list")
    return redirect("deployments:server-history", name=server.name)


# ---------- drain and cordon ----------


@require_http_methods(["GET", "POST"])
def server_drain(request: HttpRequest, name: str) -> HttpResponse:
    """GET asks for the reason; POST drains."""
    return _ask(request, find_server(name), "drain", servers.drain)


@require_http_methods(["GET", "POST"])
def npu_cordon(request: HttpRequest, name: str) -> HttpResponse:
    """GET asks for the reason, ?bus_id= naming the NPU; POST cordons it."""
    bus_id = request.POST.get("bus_id", request.GET.get("bus_id", ""))[:40]
    if not bus_id:  # its page has the NPUs to choose from
        return redirect("monitoring:server-detail", name=find_server(name).name)

    def act(server: Server, *, by: User, reason: str, ticket: str) -> Server:
        return servers.cordon(server, bus_id, by=by, reason=reason, ticket=ticket)

    return _ask(request, find_server(name), "cordon", act, bus_id=bus_id)


def _ask(request: HttpRequest, server: Server, what: str, act: Callable[..., Server], **more: Any) -> HttpResponse:
    check_may_operate(request)
    refusal: ConsoleError | None = None
    given = {name: request.POST.get(name, "") for name in ("reason", "ticket")}
    if request.method == "POST":
        try:
            act(server, by=user_of(request), **given)
            return redirect("monitoring:server-detail", name=server.name)
        except ConsoleError as error:
            refusal = error
    there = waiting.on_servers([server.pk]).get(server.pk, [])
    lock = f"{waiting.NPU_LOCK}{more.get('bus_id', '')}".upper()
    context = {
        "server": server,
        "what": what,
        "given": given,
        "refusal": refusal,
        "running": [job for job in there if not job.waiting],
        "queued": sum(job.waiting for job in there),
        "holding": [job for job in there if any(one.upper().startswith(lock) for one in job.locks)],
        **more,
    }
    return render(request, "deployments/server_ask.html", context, status=refusal.status if refusal else 200)


@require_POST
def server_end_drain(request: HttpRequest, name: str) -> HttpResponse:
    return _done(request, name, lambda server, by: servers.end_drain(server, by=by))


@require_POST
def npu_uncordon(request: HttpRequest, name: str) -> HttpResponse:
    bus_id = request.POST.get("bus_id", "")
    return _done(request, name, lambda server, by: servers.uncordon(server, bus_id, by=by))


def _done(request: HttpRequest, name: str, act: Callable[[Server, User], Server]) -> HttpResponse:
    check_may_operate(request)
    server = find_server(name)
    with refusal_said(request):
        act(server, user_of(request))
    return redirect("monitoring:server-detail", name=server.name)


# ---------- decommission ----------


@require_http_methods(["GET", "POST"])
def server_decommission(request: HttpRequest, name: str) -> HttpResponse:
    """The wizard: drain, then the name typed once more, then gone. Its steps are drawn anew while somebody waits."""
    lifecycle.check_may(user_of(request))
    server = find_server(name)
    refusal: ConsoleError | None = None
    if request.method == "POST":
        try:
            server = _decommission_step(request, server)
            if server.is_gone:
                messages.success(request, _("%(name)s was decommissioned. Its record stays.") % {"name": server.name})
                return redirect("deployments:server-gone")
            return redirect("deployments:server-decommission", name=server.name)
        except ConsoleError as error:
            refusal = error
            server.refresh_from_db()
    context = {
        "server": server,
        "refusal": refusal,
        "given": {name: request.POST.get(name, "") for name in ("confirm", "reason", "ticket")},
        "running": lifecycle.in_the_way(server),
        "drain": servers.drain_word(server),
        "by_itself": lifecycle.removes_itself(server),
        "command": lifecycle.command_on(server),
        "leave_s": lifecycle.LEAVE_S,
    }
    page = "deployments/_decommission_steps.html" if is_part(request) else "deployments/server_decommission.html"
    return render(request, page, context, status=refusal.status if refusal else 200)


def _decommission_step(request: HttpRequest, server: Server) -> Server:
    given = {name: request.POST.get(name, "") for name in ("reason", "ticket")}
    if request.POST.get("step") == "drain":
        return servers.drain(server, by=user_of(request), **given)
    return lifecycle.decommission(server, request.POST.get("confirm", ""), by=user_of(request), **given)


@require_GET
def server_gone(request: HttpRequest) -> HttpResponse:
    """Servers that were decommissioned, the last first."""
    rows = Server.objects.exclude(decommissioned_at=None).order_by("-decommissioned_at").defer("facts", "notes")
    found = list(rows[:GONE_SHOWN])
    last = _last_changes(found)
    context = {"rows": [(row, last.get(row.pk)) for row in found]}
    return render(request, "deployments/server_gone.html", context)


def _last_changes(found: list[Server]) -> dict[int, Any]:
    """{server id: the change by which it went}. One query."""
    rows = ServerChange.objects.filter(server__in=found, field="server", after="decommissioned").order_by("pk")
    return {row.server_id: row for row in rows}


@require_POST
def server_return(request: HttpRequest, name: str) -> HttpResponse:
    """A simulated server comes back; for a real one a command is made on the page for joining."""
    lifecycle.check_may(user_of(request))
    server = find_server(name)
    try:
        lifecycle.bring_back(server, by=user_of(request))
        messages.success(request, _("%(name)s is part of the fleet again.") % {"name": server.name})
    except ConsoleError as error:
        messages.error(request, f"{error.what} {error.do}")
        return redirect("deployments:server-gone")
    return redirect("monitoring:server-detail", name=server.name)
