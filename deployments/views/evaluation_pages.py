"""Evaluate a model: the form with its consequence, the page of the result, and promotion against it."""

from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console import spreadsheet
from console.answers import Answer
from console.errors import ConsoleError, Invalid
from deployments import forms
from deployments.artifacts.prompts import LANGUAGES
from deployments.kinds import evaluate
from deployments.services import evaluating, evaluation_page, evaluations, model_changes, waiting
from deployments.views.job_changes import consequence
from deployments.views.lookup import check_may_operate, find_job, is_part, refusal_said, user_of

APART = ("child", "parent", "pasted")  # asked for in another way
FIRST = ("engine", "npus", "max_tokens", "budget_pct", "agreement_pct", "prompts")
CSV_HEAD = ("n", "id", "lang", "kind", "equal", "differs_at", "same_tokens", "tokens", "garbled", "both_garbled",
            "parent_perplexity", "child_perplexity", "prompt", "parent", "child")  # fmt: skip


@require_http_methods(["GET", "POST"])
def model_evaluate(request: HttpRequest) -> HttpResponse:
    """GET with `artifact` asks; POST queues the job. `place` and `parent` name the copies."""
    check_may_operate(request)
    given = request.POST if request.method == "POST" else request.GET
    artifact = model_changes.find_given(given.get("artifact", ""))
    place = given.get("place") or evaluating.place_id(artifact, given.get("server", ""), given.get("path", ""))
    choice = evaluating.choose(artifact, place, given.get("parent", ""))
    params, problems = _read(given, choice)
    refusal: ConsoleError | None = None
    if request.method == "POST":
        try:
            return redirect("deployments:job-detail", pk=_queue(request, choice, params, problems).pk)
        except ConsoleError as error:
            refusal = error
    elif forms.FULL not in given:
        problems = {}
    context = _context(choice, params, problems, given)
    if is_part(request):
        return render(request, "deployments/_evaluate_consequence.html", context)
    context["refusal"] = refusal
    return render(request, "deployments/model_evaluate.html", context, status=refusal.status if refusal else 200)


def _read(given: QueryDict, choice: evaluating.Choice) -> tuple[dict[str, Any], dict[str, str]]:
    """Parameters with the paths of the chosen copies and the site's budget below what was typed."""
    params, problems = forms.read(evaluate, given)
    paths = {"child": choice.place.path if choice.place else "", "parent": choice.parent.path if choice.parent else ""}
    return {**evaluating.defaults(), **params, **paths}, {n: w for n, w in problems.items() if n not in APART[:2]}


def _queue(request: HttpRequest, choice: evaluating.Choice, params: dict[str, Any], problems: dict[str, str]) -> Any:
    if problems:
        raise Invalid(_("Some parameters do not fit."), _("Mend the marked fields, then queue the job again."))
    return evaluating.queue(choice, params, by=user_of(request), ticket=request.POST.get("ticket", "").strip())


def _context(
    choice: evaluating.Choice, params: dict[str, Any], problems: dict[str, str], given: QueryDict
) -> dict[str, Any]:
    server = choice.server
    every = {one.name: one for one in forms.fields(evaluate, params, problems, server) if one.name not in APART}
    if server is None or not server.npus.exists():
        every.pop("npus")
    ready = server is not None and choice.parent is not None
    found = consequence(evaluate, evaluating.evaluate_kind(), params, server if ready else None)
    engine = params.get("engine", "auto")
    return {
        **found,
        "choice": choice,
        "server": server,
        "first": [every.pop(name) for name in FIRST if name in every],
        "more": list(every.values()),
        "more_open": any(one.error for one in every.values()),
        "pasted": params.get("pasted", ""),
        "pasted_error": problems.get("pasted", ""),
        "ticket": given.get("ticket", ""),
        "given_npus": params.get("npus", []),
        "given": given,
        "wait": True,
        "engine": engine if engine != "auto" else ("vllm" if params.get("npus") else choice.engine),
        "found_wait": waiting.new(server, evaluating.evaluate_kind(), found["locks"]) if server else None,
        "wrong": _wrong(params) if ready else None,
    }


def _wrong(params: dict[str, Any]) -> ConsoleError | None:
    """What the job would be refused for."""
    try:
        evaluating.check(params)
    except ConsoleError as error:
        return error
    return None


@require_GET
def evaluation_detail(request: HttpRequest, pk: int) -> HttpResponse:
    evaluation = evaluation_page.find(pk)
    wanted = _wanted(request)
    page = Paginator(evaluation_page.answers(evaluation, **wanted), evaluation_page.PER_PAGE).get_page(
        request.GET.get("page")
    )
    sentence, faults = evaluations.judged(evaluation) if evaluation.measured else (None, [])
    artifact = evaluation.artifact
    context = {
        "evaluation": evaluation,
        "job": evaluation.attempt.job,
        "artifact": artifact,
        "sentence": sentence,
        "faults": faults,
        "measured": evaluation.measured,
        "parent_speaks": not evaluation.measured or evaluations.measured_of(evaluation.measured).parent_speaks,
        "answers": [evaluation_page.shown(row) for row in page],
        "page": page,
        "wanted": wanted,
        "query": _query(request),
        "plot": evaluation_page.plot(evaluation),
        "history": evaluations.of_artifact(artifact)[:20] if artifact else [],
        "is_newest": bool(artifact and artifact.gate and artifact.gate.get("evaluation") == evaluation.pk),
        "promotable": bool(artifact and evaluations.promotable(artifact)),
        "why_not": evaluations.why_not(artifact) if artifact else "",
        "may_promote": user_of(request).may("administrator"),
        "most_reason": evaluations.MOST_REASON,
    }
    return render(request, "deployments/evaluation_detail.html", context)


def _wanted(request: HttpRequest) -> dict[str, Any]:
    lang = request.GET.get("lang", "")
    return {"differs": "differs" in request.GET, "garbled": "garbled" in request.GET,
            "lang": lang if lang in LANGUAGES else ""}  # fmt: skip


def _query(request: HttpRequest) -> str:
    """The filters without the page."""
    kept = request.GET.copy()
    kept.pop("page", None)
    return kept.urlencode()


@require_GET
def evaluation_json(request: HttpRequest, pk: int) -> HttpResponse:
    """The whole of it as a file."""
    evaluation = evaluation_page.find(pk)
    rows = [{"n": row.n, **row.data} for row in evaluation.answers.all()]
    response = Answer({**evaluations.as_json(evaluation), "answers": rows})
    response["Content-Disposition"] = f'attachment; filename="evaluation-{pk}.json"'
    return response


@require_GET
def evaluation_csv(request: HttpRequest, pk: int) -> StreamingHttpResponse:
    evaluation = evaluation_page.find(pk)
    rows = ([row.n, *(_cell(row.data.get(name)) for name in CSV_HEAD[1:])] for row in evaluation.answers.all())
    return spreadsheet.answer(f"evaluation-{pk}.csv", CSV_HEAD, rows)


def _cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


@require_GET
def job_evaluation(request: HttpRequest, pk: int) -> HttpResponse:
    """From a job to its result."""
    return redirect("deployments:evaluation-detail", pk=evaluation_page.of_job(find_job(pk)).pk)


@require_POST
def model_promote(request: HttpRequest, pk: int) -> HttpResponse:
    """Promote it although its evaluation was not passed; back to the evaluation where it was asked for."""
    artifact = model_changes.find(pk)
    with refusal_said(request):
        evaluations.promote(artifact, request.POST.get("reason", ""), by=user_of(request))
    newest = evaluations.of_artifact(artifact).first()
    if newest is None:
        return redirect("deployments:model-detail", pk=pk)
    return redirect("deployments:evaluation-detail", pk=newest.pk)
