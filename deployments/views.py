"""Pages of jobs. A view reads the request, calls one service and chooses a template."""

import csv
import io
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from types import ModuleType
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.errors import ConsoleError, Invalid, NotAllowed, NotFound
from console.middleware import wants_json
from console.templatetags.frame import texts_for_scripts
from deployments import forms, kinds, page_texts
from deployments.language import pick
from deployments.models import Attempt, Job, JobState, Server
from deployments.models.job import ENDED
from deployments.services import job_list as listing
from deployments.services import job_page, jobs, logs, waiting
from deployments.steps import BadParams, read_params
from deployments.templatetags.jobs import job_took, kind_title


def is_part(request: HttpRequest) -> bool:
    """True when a script asks for the live part of a page alone."""
    return request.headers.get("X-Part") == "1"


# ---------- list ----------


@require_GET
def job_list(request: HttpRequest) -> HttpResponse:
    filters = listing.read_filters(request.GET)
    page = listing.page(filters)
    context = {
        "filters": filters,
        "page": page,
        "states": [("under_way", _("Under way")), *((state.value, state.label) for state in JobState)],
        "counts": listing.under_way_counts(),
        "kinds": kinds.names(),
        "older": filters.address(before=page.older) if page.older else "",
        "newer": filters.address(after=page.newer) if page.newer else "",
        "texts": texts_for_scripts(page_texts.LIST),
    }
    if wants_json(request):  # a page that polls: the rows as the server draws them
        return JsonResponse({"html": render_to_string("deployments/_job_rows.html", context, request)})
    return render(request, "deployments/_job_rows.html" if is_part(request) else "deployments/job_list.html", context)


@require_GET
def job_csv(request: HttpRequest) -> StreamingHttpResponse:
    """Every job that matches, as CSV, in bounded memory."""
    rows = _csv_rows(listing.every(listing.read_filters(request.GET)))
    response = StreamingHttpResponse(_batches(rows, 500), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="jobs.csv"'
    return response


COLUMNS = [
    "job",
    "state",
    "kind",
    "server",
    "simulated",
    "requester",
    "ticket",
    "queued",
    "started",
    "ended",
    "took_s",
    "reason",
]


def _csv_rows(found: Iterable[Job]) -> Iterator[str]:
    # The mark in front tells spreadsheets that this is UTF-8.
    yield "\ufeff" + _csv_line(COLUMNS)
    for job in found:
        times = [at.isoformat() if at else "" for at in (job.created_at, job.started_at, job.ended_at)]
        seconds = job_took(job)
        by = job.requester.username if job.requester else ""
        yield _csv_line(
            [job.pk, job.state, job.kind, job.server.name, job.server.simulated, by, job.ticket, *times,
             "" if seconds is None else round(seconds, 1), pick(job.reason)]
        )  # fmt: skip


def _csv_line(values: Iterable[Any]) -> str:
    out = io.StringIO()
    # A text that begins like a formula would be run by a spreadsheet.
    csv.writer(out).writerow(
        f"'{v}" if isinstance(v, str) and v[:1] in ("=", "+", "-", "@", "\t") else v for v in values
    )
    return out.getvalue()


async def _batches(lines: Iterator[str], size: int) -> AsyncIterator[bytes]:
    """Lines as bytes, `size` at a time: a sync iterator would be read whole before the first byte under ASGI."""
    while batch := await sync_to_async(lambda: list(islice(lines, size)))():
        yield "".join(batch).encode()


# ---------- one job ----------


def _job(pk: int) -> Job:
    job = Job.objects.select_related("server", "requester", "batch").filter(pk=pk).first()
    if job is None:
        raise NotFound(_("There is no job #%(id)s.") % {"id": pk}, _("Look for it in the list of jobs."))
    return job


def _attempt(job: Job, n: str | None) -> tuple[Attempt | None, list[Attempt]]:
    """The attempt that the address names, else the newest; and all of them."""
    every = list(job.attempts.prefetch_related("steps"))
    if not n:
        return (every[-1] if every else None), every
    chosen = next((attempt for attempt in every if n in (str(attempt.n), attempt.pk)), None)
    if chosen is None:
        raise NotFound(
            _("Job #%(id)s has no attempt %(n)s.") % {"id": job.pk, "n": n[:40]}, _("Open the job without an attempt.")
        )
    return chosen, every


@require_GET
def job_detail(request: HttpRequest, pk: int) -> HttpResponse:
    job = _job(pk)
    attempt, attempts = _attempt(job, request.GET.get("attempt"))
    context = {"job": job, "attempt": attempt, "attempts": attempts, **job_page.shown(job, attempt, attempts)}
    context["rest_call"] = job_page.rest_call(job, request.build_absolute_uri("/").rstrip("/"))
    for item in context["items"]:
        item |= _applied_by(item.get("job"), job)
    if is_part(request):
        return render(request, "deployments/_job_live.html", context)
    context |= {"log": _log_config(job, attempt, attempts), "log_complete": bool(attempt and attempt.done)}
    context |= {"texts": texts_for_scripts(page_texts.JOB)}
    return render(request, "deployments/job_detail.html", context)


def _applied_by(remedy: dict[str, Any] | None, job: Job) -> dict[str, str]:
    """The form of the job that applies a remedy, filled in; its kind came from a server and may be none of ours."""
    if not remedy or remedy.get("kind") not in kinds.names():
        return {"job": ""}
    given = remedy.get("params")
    params = given if isinstance(given, dict) else {}
    query = QueryDict(mutable=True)
    query.update({"server": job.server.name, "kind": str(remedy["kind"])})
    for name, value in list(params.items())[:50]:
        query.setlist(forms.PREFIX + str(name), [str(v) for v in value] if isinstance(value, list) else [str(value)])
    return {"job_url": f"{reverse('deployments:job-new')}?{query.urlencode()}", "job_title": kind_title(remedy["kind"])}


def _log_config(job: Job, attempt: Attempt | None, attempts: list[Attempt]) -> dict[str, Any]:
    """What static/js/topics/job.js starts from."""
    return {
        "job": job.pk,
        "attempt": attempt.pk if attempt else None,
        "newest": attempt is None or attempt is attempts[-1],
        "ended": bool(attempt and attempt.state in ENDED),
        "lines": reverse("deployments:job-lines", args=[job.pk]),
        "started": int(attempt.started_at.timestamp() * 1000) if attempt and attempt.started_at else None,
    }


@require_GET
@gzip_page
def job_lines(request: HttpRequest, pk: int) -> JsonResponse:
    """Raw records of the log: after=, before= or neither (the tail), at most n= of them."""
    attempt, _every = _attempt(_job(pk), request.GET.get("attempt"))
    if attempt is None:
        return JsonResponse({"attempt": None, "first": 1, "n": 0, "total": 0, "text": "", "done": False})
    n = _number(request, "n", 500, logs.MAX_LINES)
    if "after" in request.GET:
        found = logs.after(attempt, _number(request, "after", 0, 10**15), n)
    elif "before" in request.GET:
        found = logs.before(attempt, _number(request, "before", 1, 10**15), n)
    else:
        found = logs.tail(attempt, n)
    return JsonResponse({"attempt": attempt.pk, **vars(found), "done": attempt.done, "state": attempt.state})


def _number(request: HttpRequest, name: str, default: int, most: int) -> int:
    raw = request.GET.get(name, "")
    if not raw:
        return default
    if not raw.isascii() or not raw.isdigit() or len(raw) > 15:
        raise Invalid(
            _("%(name)s must be a whole number from 0.") % {"name": name}, _("Mend the address and ask again.")
        )
    return min(int(raw), most)


@require_GET
def job_raw(request: HttpRequest, pk: int) -> HttpResponseBase:
    """The whole log as plain text; ?download=1 as a file."""
    job = _job(pk)
    attempt, _every = _attempt(job, request.GET.get("attempt"))
    if attempt is None:
        return HttpResponse("", content_type="text/plain; charset=utf-8")
    response = StreamingHttpResponse(_raw_lines(attempt.pk), content_type="text/plain; charset=utf-8")
    disposition = "attachment" if request.GET.get("download") else "inline"
    response["Content-Disposition"] = f'{disposition}; filename="job-{job.pk}-attempt-{attempt.n}.log"'
    return response


async def _raw_lines(attempt_id: str) -> AsyncIterator[bytes]:
    line, writer = 0, logs.PlainText()
    while chunks := await sync_to_async(logs.chunks_after)(attempt_id, line):
        for first, n, records in chunks:
            yield "".join(writer.feed(records)).encode("utf-8", "replace")
            line = first + n - 1
    yield "".join(writer.flush()).encode("utf-8", "replace")


# ---------- changes ----------


def must_operate(request: HttpRequest) -> None:
    """Raises NotAllowed."""
    if not request.user.may("operator"):  # type: ignore[union-attr]
        raise NotAllowed(
            _("%(user)s may look but not change anything.") % {"user": request.user.get_username()},
            _("Ask an administrator for the role operator."),
        )


@require_http_methods(["GET", "POST"])
def job_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """GET asks whether it is meant, naming what is hit; POST cancels."""
    must_operate(request)
    job = _job(pk)
    if request.method == "GET" and not job.is_ended:
        return render(request, "deployments/job_cancel.html", {"job": job})
    return _changed(request, job, lambda: jobs.cancel_job(job, by=request.user))  # type: ignore[arg-type]


@require_POST
def job_retry(request: HttpRequest, pk: int) -> HttpResponse:
    must_operate(request)
    job = _job(pk)
    return _changed(request, job, lambda: jobs.retry_job(job, by=request.user))  # type: ignore[arg-type]


def _changed(request: HttpRequest, job: Job, change: Any) -> HttpResponse:
    """Do it and show the job; a refusal stands above it in words."""
    try:
        change()
    except ConsoleError as error:
        messages.error(request, f"{error.what} {error.do}")
    return redirect("deployments:job-detail", pk=job.pk)


@require_http_methods(["GET", "POST"])
def job_new(request: HttpRequest) -> HttpResponse:
    """The form of a kind beside what it will do; POST queues the job."""
    must_operate(request)
    given = request.POST if request.method == "POST" else _prefilled(request.GET)
    kind = given.get("kind") or kinds.names()[0]
    module = jobs.kind_module(kind)
    params, problems = forms.read(module, given)
    server = Server.objects.filter(name=given.get("server", "")).first()
    refusal: ConsoleError | None = None
    wait = forms.FULL not in given or "wait" in given
    if request.method == "POST":
        try:
            return redirect("deployments:job-detail", pk=_queue(request, server, kind, params, problems, wait).pk)
        except ConsoleError as error:
            refusal = error
    elif forms.FULL not in given:
        problems = {}  # nobody has typed anything yet
    context = {
        "kind": kind,
        "kinds": kinds.names(),
        "given": given,
        "server": server,
        "fields": forms.fields(module, params, problems, server),
        "refusal": refusal,
        "wait": wait,
        **consequence(module, kind, params),
    }
    context["found_wait"] = waiting.new(server, kind, context["locks"]) if server else None
    if is_part(request):
        return render(request, "deployments/_consequence.html", context)
    context |= {"servers": Server.objects.order_by("simulated", "name").only("name", "simulated", "rack", "family")}
    return render(request, "deployments/job_new.html", context, status=refusal.status if refusal else 200)


def _queue(
    request: HttpRequest, server: Server | None, kind: str, params: dict[str, Any], problems: dict[str, str], wait: bool
) -> Job:
    name = request.POST.get("server", "").strip()
    if server is None:
        what = _("No server is called “%(name)s”.") % {"name": name[:63]} if name else _("No server was chosen.")
        raise NotFound(what, _("Choose one from the list."), code="unknown_server")
    if problems:
        raise Invalid(_("Some parameters do not fit."), _("Mend the marked fields, then queue the job again."))
    ticket = request.POST.get("ticket", "").strip()
    return jobs.queue_job(server, kind, params, by=request.user, ticket=ticket, wait=wait)  # type: ignore[arg-type]


def _prefilled(query: QueryDict) -> QueryDict:
    """The address' own values; with again=<job> those of an earlier job below them."""
    if not (pk := query.get("again", "")).isdigit() or len(pk) > 18:
        return query
    job = _job(int(pk))
    filled = QueryDict(mutable=True)
    filled.update({"server": job.server.name, "kind": job.kind, "ticket": job.ticket})
    for name, value in job.params.items():
        filled.setlist(
            forms.PREFIX + name, value if isinstance(value, list) else ["" if value is False else str(value)]
        )
    return filled


def consequence(module: ModuleType, kind: str, params: dict[str, Any]) -> dict[str, Any]:
    """What these parameters would do: steps with their commands, locks, and how long it usually takes."""
    usual = job_page.usual_total(kind)
    try:
        read = read_params(module.Params, params)
    except BadParams:
        return {"plan": None, "locks": [], "usual_s": usual}
    plan = [(step, job_page.command_text(step.argv)) for step in module.steps(read)]
    return {"plan": plan, "locks": module.locks(read), "usual_s": usual}
