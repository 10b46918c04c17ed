"""The page of a change: settings of the next revision, beside it what they change and exactly what restarts."""

from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from console.errors import ConsoleError, Invalid
from deployments.forms import FULL
from deployments.models import Artifact, Deployment
from deployments.services import deployment_hits, deployment_page, model_changes, revisions, settings_form, wizard
from deployments.services.settings_form import Typed
from deployments.views.lookup import check_may_operate, find_deployment, is_part, user_of

MOST_MODELS = 300


@require_http_methods(["GET", "POST"])
def deployment_change(request: HttpRequest, name: str) -> HttpResponse:
    """What was typed is shown with what it would do; POST with `do` = make makes the revision."""
    check_may_operate(request)
    deployment = find_deployment(name)
    given = request.POST if request.method == "POST" else request.GET
    typed = _typed(deployment, given)
    context = _context(deployment, given, typed)
    if is_part(request):
        return render(request, "deployments/_deployment_change_consequence.html", context)
    if request.method == "POST" and given.get("do") == "make":
        try:
            _make(request, deployment, context)
            return redirect("deployments:deployment-detail", name=name)
        except ConsoleError as error:
            context["refusal"] = error
            return render(request, "deployments/deployment_change.html", context, status=error.status)
    return render(request, "deployments/deployment_change.html", context)


def _typed(deployment: Deployment, given: QueryDict) -> Typed:
    """A sent form says all; an address that names single settings says what differs from now."""
    typed, now = settings_form.read(given), deployment.revision.settings if deployment.revision else {}
    if FULL in given:
        return typed
    data = {**now, **typed.data}
    return Typed(data, {**settings_form.refusals(data), **typed.problems}, typed.heard)


def _context(deployment: Deployment, given: QueryDict, typed: Typed) -> dict[str, Any]:
    present = deployment.revision.artifact if deployment.revision else None
    artifact = model_changes.find_given(str(given["artifact"])) if given.get("artifact") else present
    how = given.get("how", "") or revisions.HOWS[0]
    context: dict[str, Any] = {
        "deployment": deployment, "artifact": artifact, "present": present, "given": given, "how": how,
        "heard": typed.heard, "guide": given.get("guide", ""), "models": _models(deployment), "typed": typed,
        "groups": settings_form.groups(typed.data, typed.problems),
        "asks_reason": wizard.gate_asks(artifact) if artifact and artifact != present else "",
    }  # fmt: skip
    if typed.problems:
        return context
    try:
        plan = revisions.plan(
            deployment, typed.data, artifact=artifact, how=how, unproved=given.get("reason", "").strip()
        )
    except ConsoleError as error:
        return {**context, "not_now": error}
    return {**context, "plan": plan, "hit": deployment_hits.of_plan(deployment_page.of(deployment), plan)}


def _models(deployment: Deployment) -> list[Artifact]:
    """Those that it may be changed to: of its own kind of fleet, and there."""
    rows = Artifact.objects.filter(simulated=deployment.simulated, format__in=("hf", "quantized"), places__gone_at=None)
    return list(rows.exclude(places=None).distinct().order_by("name").only("pk", "name")[:MOST_MODELS])


def _make(request: HttpRequest, deployment: Deployment, context: dict[str, Any]) -> None:
    """Raises ConsoleError."""
    if context["typed"].problems:
        raise Invalid(_("Some settings would not serve."), _("Mend the marked fields, then make it again."))
    given = context["given"]
    revisions.make(
        deployment, context["typed"].data, artifact=context["artifact"], by=user_of(request), how=context["how"],
        note=given.get("note", "").strip(), unproved=given.get("reason", "").strip(),
    )  # fmt: skip
