"""The page on which a model is quantized: what is chosen, and beside it what that would take."""

from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from console.errors import ConsoleError, Invalid, NotFound
from deployments import forms
from deployments.artifacts import paths, quant_words, recipes
from deployments.artifacts.quant_checks import LEVELS
from deployments.kinds import quantize
from deployments.models import Artifact, ArtifactPlace, Job, Server
from deployments.services import jobs, model_changes, quantizing, waiting
from deployments.steps import Text
from deployments.views.lookup import check_may_operate, is_part, user_of

KIND, LOOK = "quantize", "quantize_look"


@require_http_methods(["GET", "POST"])
def model_quantize(request: HttpRequest) -> HttpResponse:
    """GET shows the form, a part of it what it would take; POST queues the job, with `do` = look the one that looks."""
    check_may_operate(request)
    given = request.POST if request.method == "POST" else request.GET
    artifact = model_changes.find_given(given.get("artifact", ""))
    places = list(artifact.places.present().select_related("server"))
    place = _place(places, given)
    params, problems = forms.read(quantize, given)
    params = {**_proposed(artifact, place), **params, **({"model": place.path} if place else {})}
    problems = forms.refusals(quantize, params) if problems else {}
    refusal: ConsoleError | None = None
    if request.method == "POST":
        try:
            return redirect("deployments:job-detail", pk=_queue(request, place, params, problems).pk)
        except ConsoleError as error:
            refusal = error
    context = _context(artifact, place, params)
    if is_part(request):
        return render(request, "deployments/_quantize_consequence.html", context)
    context |= {
        "copies": places,
        "params": params,
        "problems": problems,
        "refusal": refusal,
        "given": given,
        "types": quant_words.TYPES,
        "adapters": sorted(recipes.built_in().adapters),
        "sets": sets().items(),
        "npus": [npu for npu in place.server.npus.all() if npu.bus_id] if place else [],
    }
    return render(request, "deployments/model_quantize.html", context, status=refusal.status if refusal else 200)


def sets() -> dict[str, Text]:
    """The calibration sets that the tool brings, with what they hold."""
    return {name: Text(*words) for name, words in recipes.support()["calibration"].items()}


def _place(places: list[ArtifactPlace], given: QueryDict) -> ArtifactPlace | None:
    """The copy that is named, by its id or by server and path; else the first whole one."""
    named = [one for one in places if str(one.pk) == given.get("place")]
    if "place" not in given:
        named = [one for one in places if (one.server.name, one.path) == (given.get("server"), given.get("path"))]
    return next(iter([*named, *(one for one in places if one.whole), *places]), None)


def _proposed(artifact: Artifact, place: ArtifactPlace | None) -> dict[str, Any]:
    """What a person would most likely choose."""
    model_type = quantizing.proposed_type(artifact)
    made: dict[str, Any] = {"quant_type": "w8a8", **({"model_type": model_type} if model_type else {})}
    return {**made, "target": f"{place.path}-w8a8"} if place else made


def _queue(request: HttpRequest, place: ArtifactPlace | None, params: dict[str, Any], problems: dict[str, str]) -> Job:
    """Raises ConsoleError."""
    if place is None:
        raise NotFound(_("No copy of this model lies on a server."), _("Bring it to a server first."))
    if problems:
        raise Invalid(_("Some parameters do not fit."), _("Mend the marked fields, then queue the job again."))
    kind = LOOK if request.POST.get("do") == "look" else KIND
    ticket = request.POST.get("ticket", "").strip()
    return jobs.queue_job(place.server, kind, params, by=user_of(request), ticket=ticket)


def _context(artifact: Artifact, place: ArtifactPlace | None, params: dict[str, Any]) -> dict[str, Any]:
    """What the chosen would take."""
    server: Server | None = place.server if place else None
    made = quantizing.plan(server, params) if server else None
    locks = [paths.lock(str(params.get("target", ""))), *(f"npu:{one}" for one in params.get("npus", ()))]
    return {
        "artifact": artifact,
        "copy": place,
        "server": server,
        "plan": made,
        "levels": LEVELS,
        "locks": locks,
        "found_wait": waiting.new(server, KIND, locks) if server else None,
        **(_way_to_tools(server) if server and made and not made.tools else {}),
        "set_words": sets().get(made.calibration) if made else None,
        "last_look": server.jobs.filter(kind=LOOK, params__model=params.get("model")).order_by("-pk").first()
        if server
        else None,
    }


def _way_to_tools(server: Server) -> dict[str, Any]:
    """Where to go on a server without msModelSlim."""
    return {"bringing": quantizing.bringing_tools(server), "try_stack": quantizing.stack_for_trying(server)}
