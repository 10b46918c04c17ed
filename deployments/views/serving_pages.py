"""The page that plans how a model may be served."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from console.errors import ConsoleError
from deployments.models import Artifact, Server
from deployments.services import model_catalogue, serving_plans, wizard_page
from deployments.serving import limits, planner
from deployments.serving.planner import Plan
from deployments.serving.spec import Spec, kv_bytes_per_token

FIELDS = (
    "model", "server", "chip", "hbm_mb", "npus", "servers", "group", "max_model_len", "concurrency", "quant", "dtype",
    "utilization",
)  # fmt: skip
MOST_NAMES = 500


@require_GET
def serving_plan(request: HttpRequest) -> HttpResponse:
    given = {name: request.GET.get(name, "")[:200] for name in FIELDS}
    context: dict[str, Any] = {
        "given": given,
        "models": names(),
        "servers": Server.objects.present().filter(npus__isnull=False).distinct()[:2000],
        "quants": serving_plans.QUANTS,
        "dtypes": serving_plans.DTYPES,
    }
    if given["model"]:
        try:
            asked = serving_plans.ask(given)
        except ConsoleError as error:
            context["refusal"] = error
        else:
            found = serving_plans.answer(asked)
            context |= {
                "asked": asked,
                "loaded": serving_plans.loaded_by(asked),
                "kv_bytes": round(kv_bytes_per_token(asked.spec)),
                "plans": [shown(plan, asked.spec) for plan in found.plans],
                "refusals": found.refusals,
            }
    return render(request, "deployments/serving_plan.html", context)


def names() -> list[str]:
    """What the field of the model suggests: those that lie here first."""
    here = Artifact.objects.filter(format__in=("hf", "quantized")).order_by("simulated", "name")
    return [*dict.fromkeys([*here.values_list("name", flat=True)[:MOST_NAMES], *model_catalogue.models().rows])]


def shown(plan: Plan, spec: Spec) -> dict[str, Any]:
    return {
        "goals": [planner.GOALS[goal] for goal in plan.goals],
        "way": limits.words(plan.engine),
        "plan": plan,
        "rects": wizard_page.rects(plan),
        "longest": plan.longest_of(spec),
        "command": ["vllm", "serve", "MODEL", *plan.flags],
    }
