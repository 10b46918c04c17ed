"""Logs of several servers in one view by time: replicas of a deployment, jobs of a batch."""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_GET

from console.templatetags.frame import texts_for_scripts
from deployments import page_texts
from deployments.asked_logs import number
from deployments.services import logs, merged_logs
from deployments.services.merged_logs import Many, Wanted
from deployments.views.batch_pages import find_batch
from deployments.views.lookup import find_deployment


@require_GET
def deployment_logs(request: HttpRequest, name: str) -> HttpResponse:
    """All replicas that are there or ended lately; ?replica=N all nodes of that one."""
    deployment = find_deployment(name)
    many = merged_logs.of_deployment(deployment, _replica(request))
    lines = reverse("deployments:deployment-log-lines", args=[name])
    context = {"deployment": deployment, "replica": _replica(request), **_shown(request, many, lines)}
    return render(request, "deployments/deployment_logs.html", context)


@require_GET
@gzip_page
def deployment_log_lines(request: HttpRequest, name: str) -> JsonResponse:
    many = merged_logs.of_deployment(find_deployment(name), _replica(request))
    return JsonResponse(merged_logs.read(many, _wanted(request)))


@require_GET
def batch_logs(request: HttpRequest, pk: int) -> HttpResponse:
    batch = find_batch(pk)
    many = merged_logs.of_batch(batch)
    context = {"batch": batch, **_shown(request, many, reverse("deployments:batch-log-lines", args=[pk]))}
    return render(request, "deployments/batch_logs.html", context)


@require_GET
@gzip_page
def batch_log_lines(request: HttpRequest, pk: int) -> JsonResponse:
    return JsonResponse(merged_logs.read(merged_logs.of_batch(find_batch(pk)), _wanted(request)))


def _replica(request: HttpRequest) -> int | None:
    return number(request, "replica", 0, 2**31 - 1) if request.GET.get("replica") else None


def _wanted(request: HttpRequest) -> Wanted:
    given = request.GET
    off = frozenset(given.get("off", "")[: merged_logs.MOST_TEXT].split(","))
    return Wanted(given.get("before", ""), given.get("after", ""), number(request, "n", 500, logs.MAX_LINES), off)


def _shown(request: HttpRequest, many: Many, lines: str) -> dict[str, Any]:
    """`sources` for the template, and what static/js/topics/merged_log.js starts from."""
    replica = request.GET.get("replica", "")
    return {
        "sources": [merged_logs.as_json(one) for one in many.sources],
        "left_out": many.left_out,
        "deleted": [(one.name, one.deleted) for one in many.sources if one.deleted],
        "log_gone": merged_logs.all_gone(many),
        "short_names": all(len(one.name) <= 5 for one in many.sources),
        "most": merged_logs.MOST_SOURCES,
        "log": {"lines": f"{lines}?replica={replica}&" if replica else f"{lines}?"},
        "texts": texts_for_scripts(page_texts.JOB + page_texts.ENGINE_LOG + page_texts.MERGED_LOG),
    }
