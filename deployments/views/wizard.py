"""The page of a new deployment: model, plan, servers, settings, what will run; and its start.

What was typed stands in the address: each button but the last leads to one that says it all, so that going back
brings it back, and a script may ask for what it would do.
"""

import re
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from console.errors import ConsoleError, Invalid
from deployments.models import Artifact
from deployments.models.deployment import Spread
from deployments.services import model_changes, serving_hardware, settings_form, wizard, wizard_page
from deployments.services.settings_form import Typed
from deployments.services.wizard import Card, Trial
from deployments.views.lookup import check_may_operate, is_part, user_of

MOST_REPLICAS = 1000
MOST_SERVERS = 2000
KEPT = ("concurrency", "replicas", "first", "spread", "name", "note", "reason")
SPREADS = [*Spread.choices]


@require_http_methods(["GET", "POST"])
def deployment_new(request: HttpRequest) -> HttpResponse:
    check_may_operate(request)
    given = request.POST if request.method == "POST" else request.GET
    if not given.get("artifact"):
        return render(request, "deployments/deployment_new_model.html", {"models": wizard_page.models()})
    artifact = model_changes.find_given(given["artifact"])
    typed = settings_form.read(given)
    if request.method == "POST" and given.get("do") != "start":
        return redirect(_address(given, artifact, typed))
    context = _context(artifact, given, typed)
    if is_part(request):
        return render(request, "deployments/_deployment_new_consequence.html", context)
    if request.method == "POST":
        try:
            return redirect("deployments:deployment-detail", name=_start(request, context).name)
        except ConsoleError as error:
            context["refusal"] = error
            return render(request, "deployments/deployment_new.html", context, status=error.status)
    return render(request, "deployments/deployment_new.html", context)


def _address(given: QueryDict, artifact: Artifact, typed: Typed) -> str:
    """Where the same stands to be looked at, with another plan's settings where one was taken."""
    data = typed.data
    do = given.get("do", "")
    if do.startswith("plan-"):
        made = _cards(artifact, given)
        chosen = next((one for one in made if one.key == do.removeprefix("plan-")), None)
        data = wizard.taken(data, chosen) if chosen else data
    pairs = [("artifact", str(artifact.pk)), *((name, given[name]) for name in KEPT if given.get(name))]
    pairs += [("servers", name) for name in given.getlist("servers")]
    pairs += [("told", given["guide"][:2000])] if given.get("guide", "").strip() else []
    return f"{reverse('deployments:deployment-new')}?{urlencode(pairs)}&full=1&{settings_form.query(data)}"


def _cards(artifact: Artifact, given: QueryDict) -> list[Card]:
    spec = wizard.spec_of(artifact)
    if spec is None:
        return []
    hardware = serving_hardware.of_fleet(simulated=artifact.simulated, names=_servers(given))
    return wizard.cards(spec, hardware, _wish(given), cpu=True)


def _wish(given: QueryDict) -> dict[str, Any]:
    return {"concurrency": _whole(given.get("concurrency"), 0, 100_000)}


def _whole(text: str | None, usual: int, most: int) -> int:
    """A count of the form; what is none counts as not said, and the page shows what was taken."""
    plain = (text or "").strip().replace(",", "")
    return min(int(plain), most) if plain.isascii() and plain.isdecimal() and len(plain) < 9 else usual


def _context(artifact: Artifact, given: QueryDict, typed: Typed) -> dict[str, Any]:
    made = _cards(artifact, given)
    data = dict(typed.data)
    fresh = not data and "full" not in given
    name = given.get("name", "").strip() or wizard.proposed_name(artifact)
    if fresh:
        data = {"served_model_name": name, **(made[0].settings if made else {})}
    first = given.get("first", "one") != "all"
    trial = Trial(
        artifact, wizard.spec_of(artifact), data,
        1 if first else max(1, _whole(given.get("replicas"), 1, MOST_REPLICAS)),
        _servers(given), _spread(given),
    )  # fmt: skip
    context = wizard_page.context(trial, typed, made, told=given.get("told", ""))
    return {
        **context, "name": name, "first": first, "given": given, "spreads": SPREADS, "guide": given.get("guide", ""),
        "asks_reason": wizard.gate_asks(artifact),
    }  # fmt: skip


def _servers(given: QueryDict) -> tuple[str, ...]:
    """Names that may be some; others are left out as if they were not ticked."""
    return tuple(name for name in given.getlist("servers")[:MOST_SERVERS] if re.fullmatch(r"[\w.-]{1,63}", name))


def _spread(given: QueryDict) -> str:
    said = given.get("spread", "")
    return said if said in Spread.values else str(Spread.RACKS)


def _start(request: HttpRequest, context: dict[str, Any]) -> Any:
    """Raises ConsoleError."""
    if context["problems"]:
        raise Invalid(
            _("Some settings would not serve."), _("Mend the marked fields, then start again."), code="bad_settings"
        )
    given = context["given"]
    return wizard.start(
        context["trial"],
        context["name"],
        by=user_of(request),
        note=given.get("note", "").strip(),
        reason=given.get("reason", ""),
    )
