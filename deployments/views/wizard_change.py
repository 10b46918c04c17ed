"""The page on which a deployment is changed: a new revision, with what differs and which replicas restart."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from console.errors import Conflict, ConsoleError, Invalid
from deployments.models import Artifact, Deployment
from deployments.services import model_changes, revisions, settings_form, wizard, wizard_page
from deployments.views.lookup import check_may_operate, find_deployment, is_part, user_of

KEPT = ("artifact", "how", "note", "reason", "r")


@require_http_methods(["GET", "POST"])
def deployment_change(request: HttpRequest, name: str) -> HttpResponse:
    """GET shows form and difference; POST with `do` = ask names what is hit, with change it is done."""
    check_may_operate(request)
    deployment = find_deployment(name)
    given = request.POST if request.method == "POST" else request.GET
    do = given.get("do", "") if request.method == "POST" else ""
    context = _context(deployment, given)
    if do == "change":
        try:
            _make(request, deployment, context)
            return redirect("deployments:deployment-detail", name=name)
        except ConsoleError as error:
            context["refusal"] = error
            return render(request, "deployments/deployment_change.html", context, status=error.status)
    if do == "ask" and not context["problems"] and not context["why"]:
        return render(request, "deployments/deployment_change_ask.html", context)
    if do == "look":
        return redirect(_address(deployment, given, context["data"]))
    template = "_deployment_change_effect" if is_part(request) else "deployment_change"
    return render(request, f"deployments/{template}.html", context)


def _address(deployment: Deployment, given: QueryDict, data: dict[str, Any]) -> str:
    pairs = [(name, given[name]) for name in KEPT if given.get(name)]
    pairs += [("told", given["guide"][:2000])] if given.get("guide", "").strip() else []
    address = reverse("deployments:deployment-change", args=[deployment.name])
    return f"{address}?{urlencode(pairs)}&full=1&{settings_form.query(data)}"


def _context(deployment: Deployment, given: QueryDict) -> dict[str, Any]:
    before = deployment.revision
    typed = settings_form.read(given)
    data = typed.data if "full" in given else {**(before.settings if before else {}), **typed.data}
    artifact = _artifact(deployment, given)
    how = given.get("how", "") if given.get("how", "") in revisions.HOWS else revisions.HOWS[0]
    shown = wizard_page.changed(deployment, artifact, data, typed, how=how, reason=given.get("reason", ""))
    return {
        **shown,
        "deployment": deployment,
        "data": data,
        "how": how,
        "given": given,
        "guide": given.get("guide", ""),
        "heard": wizard_page.heard(typed, given.get("told", "")),
        "asks_reason": wizard.gate_asks(artifact) if artifact and before and artifact != before.artifact else "",
        "r": given.get("r") or (before.n if before else 0),
        "sent": [*settings_form.pairs(data).items()],
        "models": wizard_page.models(simulated=deployment.simulated, present=artifact),
    }


def _artifact(deployment: Deployment, given: QueryDict) -> Artifact | None:
    """The model that is named, else the one it has."""
    if given.get("artifact"):
        return model_changes.find_given(given.get("artifact", ""))
    return deployment.revision.artifact if deployment.revision else None


def _make(request: HttpRequest, deployment: Deployment, context: dict[str, Any]) -> None:
    """Raises ConsoleError."""
    now = deployment.revision.n if deployment.revision else 0
    if str(context["r"]) != str(now):
        raise Conflict(
            _("%(name)s was changed to revision %(n)s meanwhile.") % {"name": deployment.name, "n": now},
            _("Open the page again, then make your change."),
            code="changed_meanwhile",
        )
    if context["problems"]:
        raise Invalid(_("Some settings would not serve."), _("Mend the marked fields, then try again."))
    given = context["given"]
    revisions.make(
        deployment, context["data"], artifact=context["artifact"], by=user_of(request), how=context["how"],
        note=given.get("note", "").strip(), unproved=" ".join(given.get("reason", "").split()),
    )  # fmt: skip
