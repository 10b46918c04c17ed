"""The pages of stacks: the catalogue, one stack against every server, and the plan for one server."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from console.errors import ConsoleError
from deployments.services import installs, package_sources, stacks, wheel_bundles
from deployments.stacks import verdict
from deployments.stacks.catalogue import newest_first
from deployments.stacks.fields import STATES
from deployments.stacks.options import CANN_PLACES, CHOICES, LAYERINGS, RESTARTS, ROUTES, Options
from deployments.views.lookup import find_server
from monitoring.services import stack_holders, stack_page

PAGE = 200
DRIFT_SHOWN = 40


@require_GET
def stack_list(request: HttpRequest) -> HttpResponse:
    """The catalogue with counts, and drift."""
    rows = stacks.rows()
    known, tallies, drift = stacks.catalogue(), stacks.counts(rows), stacks.drift(rows)
    state, family = request.GET.get("state", ""), request.GET.get("family", "")
    shown = [
        stack
        for stack in newest_first(known.stacks)
        if (state not in STATES or stack.state == state) and (family not in known.families or family in stack.families)
    ]
    context = {
        "lines": [stack_page.line(stack, tallies[stack.name]) for stack in shown],
        "total": len(known.stacks),
        "version": known.version,
        "default": known.default,
        "problems": known.problems,
        "sources": known.about["sources"],
        "state": state,
        "family": family,
        "states": STATES,
        "families": [one.name for one in known.families.values() if one.supported],
        "drift": drift[:DRIFT_SHOWN],
        "drifted": sorted({one.row.wished for one in drift if one.state == "drift"})[:4],
        "drift_left": len(drift[DRIFT_SHOWN:]),
        "drift_counts": stack_page.drift_counts(drift, len(rows)),
        "servers": len(rows),
        "verdict_words": verdict.WORDS,
        "from_where": package_sources.as_json(),
        "bundles": wheel_bundles.present(),
        "public": [known.addresses["index"], *known.addresses["extra_indexes"]],
    }
    return render(request, "monitoring/stack_list.html", context)


@require_GET
def stack_detail(request: HttpRequest, name: str) -> HttpResponse:
    """One stack, and the verdict for each server, the console's own machine first."""
    stack, rows = stacks.find(name), sorted(stacks.rows(), key=lambda row: not row.is_local)
    found = [(row, stacks.verdict_of(row, stack)) for row in rows]
    wanted = request.GET.get("verdict", "")
    tally = {word: sum(one.word == word for _row, one in found) for word in verdict.WORDS}
    if wanted in verdict.WORDS:
        found = [(row, one) for row, one in found if one.word == wanted]
    text = request.GET.get("page", "")
    page = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    context = {
        "stack": stack,
        "line": stack_page.line(stack, tally),
        "facts": stack_page.facts(stack),
        "tally": tally,
        "wanted": wanted,
        "rows": found[page * PAGE : (page + 1) * PAGE],
        "page": page,
        "more": len(found) > (page + 1) * PAGE,
        "servers": len(rows),
        "wished": sum(row.wished == name for row in rows),
    }
    return render(request, "monitoring/stack_detail.html", context)


@require_GET
def stack_plan(request: HttpRequest, name: str, server: str) -> HttpResponse:
    """What would run to bring one server to the stack, with the operator's choices beside it."""
    stack, found = stacks.find(name), find_server(server)
    refusal: ConsoleError | None = None
    options = Options()
    try:
        options = installs.options_for(found, request.GET.dict(), stack)
    except ConsoleError as error:
        refusal = error
    made = stacks.plan_for(found, stack, options, stack_holders.of(found))
    chosen = {name: request.GET[name] for name in CHOICES if request.GET.get(name)}
    has = stacks.row_of(found).has
    context: dict[str, Any] = {
        "stack": stack,
        "server": found,
        "options": options,
        "for_npus": stack.kind == "npu",
        "given": request.GET,
        "routes": ROUTES,
        "cann_places": CANN_PLACES,
        "layerings": LAYERINGS,
        "restarts": RESTARTS,
        "plan": made,
        "layers": stack_page.layers(made),
        "refusal": refusal,
        "rest": f"/api/v1/servers/{found.name}/stack-plan?" + urlencode({"stack": stack.name, **chosen}),
        "chosen": urlencode(chosen),
        "obstacle": installs.obstacle(found, made),
        "beside": installs.beside(found),
        "bundles": wheel_bundles.fitting(name, has.arch),
        "has": has,
    }
    status = refusal.status if refusal else 200
    return render(request, "monitoring/stack_plan.html", context, status=status)
