"""Benchmarks of a deployment: the form, the run that is under way, plot and table, comparison, files."""

from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from console import spreadsheet
from console.answers import Answer
from console.errors import ConsoleError, Invalid
from deployments import forms
from deployments.kinds import benchmark as kind
from deployments.models import Benchmark, Deployment, Replica
from deployments.services import benchmarks
from deployments.serving import bench
from deployments.views.lookup import check_may_operate, is_part, user_of

FIRST = ("degrees", "prompts", "input_len", "output_len")
TARGETS = ("target_concurrency", "target_tpot_ms", "target_ttft_ms", "target_tokens_s", "percentile")
APART = ("replica", "through", "sealed_key")
SHOWN = 50
CSV_HEAD = ("concurrency", "prompts", "completed", "failed", "duration_s", "requests_s", "output_tokens_s",
            "total_tokens_s", "others")  # fmt: skip


@require_http_methods(["GET", "POST"])
def benchmark_list(request: HttpRequest, name: str) -> HttpResponse:
    """GET shows `run` (the newest without it) beside `with`, and the form; POST queues a run."""
    deployment = benchmarks.find_deployment(name)
    refusal: ConsoleError | None = None
    problems: dict[str, str] = {}
    given = request.POST if request.method == "POST" else request.GET
    params, problems = forms.read(kind, given) if forms.FULL in given else ({}, {})
    if request.method == "POST":
        check_may_operate(request)
        try:
            row = _queue(request, deployment, params, problems)
            return redirect(f"{reverse('deployments:benchmark-list', args=[name])}?run={row.pk}")
        except ConsoleError as error:
            refusal = error
    context = _context(request, deployment)
    if is_part(request):
        return render(request, "deployments/_benchmark_live.html", context)
    context |= _form(deployment, params, {n: w for n, w in problems.items() if n not in APART}, given)
    context["refusal"] = refusal
    return render(request, "deployments/benchmark_list.html", context, status=refusal.status if refusal else 200)


def _queue(request: HttpRequest, deployment: Deployment, params: dict[str, Any], problems: dict[str, str]) -> Benchmark:
    wrong = {name: words for name, words in problems.items() if name not in APART}
    if wrong:
        raise Invalid(_("Some parameters do not fit."), _("Mend the marked fields, then queue the job again."))
    where = request.POST.get("where", "")
    wanted = int(where) if where.isdecimal() and len(where) < 16 else None
    key = request.POST.get("gateway_key", "").strip() if where == "gateway" else None
    asked = {name: value for name, value in params.items() if name not in APART}
    return benchmarks.queue(deployment, {**asked, "replica": wanted}, by=user_of(request), gateway_key=key)


def _context(request: HttpRequest, deployment: Deployment) -> dict[str, Any]:
    history = list(benchmarks.of_deployment(deployment)[:SHOWN])
    run = _wanted(request.GET, "run", deployment) or (history[0] if history else None)
    other = _wanted(request.GET, "with", None)
    other = other if run and other and other.pk != run.pk else None
    return {
        "deployment": deployment,
        "history": history,
        "run": run,
        "running": run is not None and benchmarks.is_running(run),
        "verdict": benchmarks.verdict_of(run) if run and run.ended_at else None,
        "points": run.points if run else [],
        "disturbed": benchmarks.disturbed(run) if run else [],
        "other": other,
        "pairs": benchmarks.compare(other, run) if run and other else [],
        "unlike": benchmarks.unlike(other, run) if run and other else [],
        "choices": benchmarks.comparable(run) if run else [],
        "plot": _plot(run, other) if run and run.points else None,
    }


def _wanted(given: QueryDict, name: str, of: Deployment | None) -> Benchmark | None:
    """The run that the address names. Raises NotFound where it is none, or of another deployment."""
    text = given.get(name, "")
    if not text:
        return None
    row = benchmarks.find(int(text) if text.isdecimal() and len(text) < 19 else 0)
    if of is not None and row.deployment_id != of.pk:
        return benchmarks.find(0)
    return row


def _plot(run: Benchmark, other: Benchmark | None) -> dict[str, Any]:
    """What the plot draws: newest last, so that it lies above."""
    rows = [one for one in (other, run) if one is not None]
    return {
        "runs": [{"name": _name(one), "points": one.points} for one in rows],
        "targets": run.targets,
        "words": {
            "concurrency": _("Concurrent requests"), "rate": _("Output, tokens/s"), "time": _("Milliseconds"),
            "target": _("target"),
        },
    }  # fmt: skip


def _name(row: Benchmark) -> str:
    revision = f" r{row.revision.n}" if row.revision else ""
    return f"{row.deployment.name}{revision} #{row.pk}"


def _form(deployment: Deployment, params: dict[str, Any], problems: dict[str, str], given: QueryDict) -> dict[str, Any]:
    there = benchmarks.replicas(deployment)
    where = given.get("where", "")
    chosen = next((one for one in there if str(one.pk) == where), there[0] if there else None)
    values = {**benchmarks.defaults(chosen), **params}
    every = {one.name: one for one in forms.fields(kind, values, problems, None) if one.name not in APART}
    return {
        "replicas": there,
        "gateway": benchmarks.gateway_of(deployment),
        "where": where or (str(chosen.pk) if chosen else ""),
        "busy": _busy(chosen),
        "context_tokens": benchmarks.context_of(chosen) if chosen else 0,
        "first": [every.pop(name) for name in FIRST],
        "targets": [every.pop(name) for name in TARGETS],
        "more": list(every.values()),
        "more_open": any(one.error for one in every.values()),
        "guide": benchmarks.GUIDE,
        "full": forms.FULL,
        "interrupts": kind.INTERRUPTS,
    }


def _busy(replica: Replica | None) -> int | None:
    return benchmarks.load_of(replica) if replica else None


@require_GET
def benchmark_json(request: HttpRequest, name: str, pk: int) -> HttpResponse:
    """The whole of a run as a file."""
    response = Answer(benchmarks.as_json(_of(name, pk)))
    response["Content-Disposition"] = f'attachment; filename="benchmark-{pk}.json"'
    return response


@require_GET
def benchmark_csv(request: HttpRequest, name: str, pk: int) -> StreamingHttpResponse:
    row = _of(name, pk)
    metrics = [(time, part) for time in benchmarks.TIMES for part in bench.PERCENTILES]
    head = [*CSV_HEAD, *(f"{time.removesuffix('_ms')}_{part}_ms" for time, part in metrics)]
    rows = (
        [*(one.get(name) for name in CSV_HEAD), *((one.get(time) or {}).get(part) for time, part in metrics)]
        for one in row.points
    )
    return spreadsheet.answer(f"benchmark-{pk}.csv", head, rows)


def _of(name: str, pk: int) -> Benchmark:
    row = benchmarks.find(pk)
    return row if row.deployment.name == name else benchmarks.find(0)
