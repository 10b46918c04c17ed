"""The page of engines that the console did not start. Nothing on it stops or changes one."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from deployments.services import external_engines, external_live
from deployments.views.lookup import check_may_operate, refusal_said, user_of

SHOWN = 500


@require_GET
def engine_list(request: HttpRequest) -> HttpResponse:
    """?gone=1 shows those that are there no more."""
    gone = request.GET.get("gone") == "1"
    found = list(external_engines.rows(gone=gone)[: SHOWN + 1])
    said = {} if gone else external_live.read(row.server_id for row in found)
    rows = [
        (row, external_engines.title(row), external_live.words(said.get((row.server_id, row.key))))
        for row in found[:SHOWN]
    ]
    context = {"rows": rows, "gone": gone, "more": len(found) > SHOWN}
    return render(request, "deployments/engine_list.html", context)


@require_POST
def engine_change(request: HttpRequest, pk: int) -> HttpResponse:
    """`alias` names it, `watch` = 1 or 0 turns its alert on or off."""
    check_may_operate(request)
    watch = request.POST.get("watch")
    with refusal_said(request):
        external_engines.change(
            external_engines.find(pk), by=user_of(request), alias=request.POST.get("alias"),
            watched=None if watch is None else watch == "1",
        )  # fmt: skip
    return redirect("deployments:engine-list")
