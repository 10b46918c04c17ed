"""Labels, racks and sites of many servers at once: chosen, shown, then changed; and saved filters of the fleet."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_POST

from console.errors import ConsoleError
from deployments.models import Server, ServerChange
from deployments.services import filters, history, inventory, selection
from deployments.views.lookup import check_may_operate, refusal_said, user_of

SHOWN = 200  # servers of the preview that are listed with what changes there


@require_http_methods(["GET", "POST"])
def servers_edit(request: HttpRequest) -> HttpResponse:
    """GET with ?server=… (many) or ?find=&fleet= shows whom it would hit; POST shows what would change, and with
    `sure` changes it."""
    check_may_operate(request)
    sent = request.POST if request.method == "POST" else request.GET
    found, problems = chosen(sent)
    refusal: ConsoleError | None = None
    hits: list[inventory.Hit] = []
    if request.method == "POST" and found:
        try:
            bulk = inventory.clean_bulk(read_bulk(sent))
            hits = inventory.plan(found, bulk)
            if sent.get("sure"):
                return _change(request, found, bulk)
        except ConsoleError as error:
            refusal = error
    context = {
        "servers": found,
        "problems": problems,
        "refusal": refusal,
        "given": sent,
        "labels": _labels_there(found),
        "hits": [_drawn(hit) for hit in hits if hit.changes][:SHOWN],
        "hit": sum(bool(hit.changes) for hit in hits),
        "same": sum(not hit.changes for hit in hits),
        "simulated": sum(server.simulated for server in found),
        "planned": bool(hits) and refusal is None,
    }
    return render(request, "deployments/servers_edit.html", context, status=refusal.status if refusal else 200)


def _change(request: HttpRequest, found: list[Server], bulk: inventory.Bulk) -> HttpResponse:
    change_set, changed = inventory.edit_many(
        found, bulk, by=user_of(request), ticket=request.POST.get("ticket", "")
    )  # fmt: skip
    told = ngettext("%(n)s server was changed.", "%(n)s servers were changed.", changed) % {"n": changed}
    messages.success(request, told)
    return redirect("deployments:change-set", change_set=change_set) if changed else redirect("monitoring:server-list")


def chosen(sent: QueryDict) -> tuple[list[Server], list[str]]:
    """(the servers that were ticked, else those that the filter keeps; sentences about what hit nothing)"""
    names = [name for name in sent.getlist("server") if name][: inventory.MOST_SERVERS]
    find, fleet = sent.get("find", "").strip()[:200], sent.get("fleet", "") or "both"
    if not names and not find and not sent.get("all"):
        return [], []
    try:
        return selection.find(
            selection.Asked(names=names, find="" if names else find, fleet="both" if names else fleet)
        )
    except ConsoleError as error:
        return [], [f"{error.what} {error.do}"]


def read_bulk(sent: QueryDict) -> inventory.Bulk:
    """Raises Invalid. A box that was ticked stands for a value that is to be set, be it to nothing."""
    removed = [name.partition("=")[0] for name in sent.get("remove_labels", "").replace(",", " ").split()]
    return inventory.Bulk(
        inventory.read_labels(sent.get("add_labels", "")),
        removed,
        sent.get("site", "") if sent.get("set_site") or sent.get("site") else None,
        sent.get("rack", "") if sent.get("set_rack") or sent.get("rack") else None,
    )


def _labels_there(found: list[Server]) -> list[tuple[str, int]]:
    """The names of labels on these servers, each with how many have it."""
    tally: dict[str, int] = {}
    for server in found:
        for name in inventory.labels_of(server):
            tally[name] = tally.get(name, 0) + 1
    return sorted(tally.items())[:40]


def _drawn(hit: inventory.Hit) -> dict[str, Any]:
    rows = [(history.title(name), history.words(name, old), history.words(name, new)) for name, old, new in hit.changes]
    return {"server": hit.server, "changes": rows}


@require_http_methods(["GET"])
def change_set(request: HttpRequest, change_set: str) -> HttpResponse:
    """What was changed together, with the way back."""
    rows = list(ServerChange.objects.filter(change_set=change_set[:16]).select_related("server").order_by("pk")[:2000])
    context = {
        "rows": [
            (row, history.title(row.field), history.words(row.field, row.before), history.words(row.field, row.after))
            for row in rows
        ],
        "change_set": change_set[:16],
        "servers": len({row.server_id for row in rows}),
        "undoable": any(row.undone_at is None and row.field in inventory.EDITABLE for row in rows),
    }
    return render(request, "deployments/change_set.html", context, status=200 if rows else 404)


# ---------- saved filters ----------


@require_POST
def filter_save(request: HttpRequest) -> HttpResponse:
    """Keep what the fleet page shows under a name."""
    query = request.POST.get("query", "")
    with refusal_said(request):
        row = filters.save(
            request.POST.get("name", ""), query, shared=bool(request.POST.get("shared")), by=user_of(request)
        )  # fmt: skip
        messages.success(request, _("The filter “%(name)s” is saved.") % {"name": row.name})
    return redirect(_back(request))


@require_POST
def filter_delete(request: HttpRequest, pk: int) -> HttpResponse:
    with refusal_said(request):
        name = filters.delete(pk, by=user_of(request))
        messages.success(request, _("The filter “%(name)s” is deleted.") % {"name": name})
    return redirect(_back(request))


def _back(request: HttpRequest) -> str:
    """The page of ours that the form stood on."""
    back = request.POST.get("back", "/")
    return back if url_has_allowed_host_and_scheme(back, allowed_hosts=None) and back.startswith("/") else "/"
