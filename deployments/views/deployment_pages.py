"""Pages of deployments: the list, and one deployment with its replicas, revisions and address."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from console.middleware import wants_json
from console.templatetags.frame import texts_for_scripts
from deployments import page_texts
from deployments.models import Deployment
from deployments.services import (
    deployment_list,
    deployment_page,
    deployment_schedule,
    deployment_ways,
    deployment_words,
)
from deployments.views.lookup import find_deployment, is_part, user_of
from deployments.views.model_pages import live


@require_GET
def deployment_list_page(request: HttpRequest) -> HttpResponse:
    filters = deployment_list.read_filters(request.GET)
    page = deployment_list.page(filters)
    context = {
        "filters": filters,
        "page": page,
        "newer": filters.address(page=page.number - 1) if page.number > 1 else "",
        "older": filters.address(page=page.older) if page.older else "",
        "none_at_all": page.total == 0 and not filters.any,
        "sample": deployment_ways.sample_model(),
        "externals": deployment_list.external_count(),
    }
    if not is_part(request) and not wants_json(request):
        context |= {"states": deployment_list.STATES}
    return live(request, "deployments/deployment_list.html", "deployments/_deployment_rows.html", context)


@require_GET
def deployment_detail(request: HttpRequest, name: str) -> HttpResponse:
    deployment = find_deployment(name)
    context = shown(request, deployment)
    if not is_part(request) and not wants_json(request):
        context["texts"] = texts_for_scripts(page_texts.DEPLOYMENT)
    return live(request, "deployments/deployment_detail.html", "deployments/_deployment_live.html", context)


def shown(request: HttpRequest, deployment: Deployment) -> dict[str, Any]:
    """What the templates of one deployment read."""
    page = deployment_page.of(deployment)
    return {
        "deployment": deployment,
        "page": page,
        "said": deployment_words.of(page),
        "rollout": deployment_words.Rollout.of(page),
        "actions": deployment_ways.actions(page) if user_of(request).may("operator") else [],
        "ways_on": deployment_ways.ways_on(deployment),
        "calls": deployment_ways.calls(page),
        "schedule": deployment_schedule.rows(deployment.schedule),
        "next_change": deployment_schedule.next_change(deployment),
        "rest": request.build_absolute_uri(f"/api/v1/deployments/{deployment.name}"),
    }
