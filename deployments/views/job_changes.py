"""What an operator does to jobs: queue, cancel, retry, decide about those of others."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from console.errors import ConsoleError, Invalid, NotFound
from deployments import forms, kinds
from deployments.models import Job, Server
from deployments.services import approvals, approving, filling, in_use, job_page, jobs, root_access, waiting
from deployments.steps import BadParams, read_params
from deployments.views import own_pages
from deployments.views.lookup import check_may_operate, find_job, is_part, only_server, refusal_said, user_of


@require_http_methods(["GET", "POST"])
def job_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """GET asks whether it is meant, naming what is hit; POST cancels."""
    check_may_operate(request)
    job = find_job(pk)
    if request.method == "GET" and not job.is_ended:
        return render(request, "deployments/job_cancel.html", {"job": job})
    return _changed(request, job, lambda: jobs.cancel_job(job, by=user_of(request)))


@require_POST
def job_retry(request: HttpRequest, pk: int) -> HttpResponse:
    check_may_operate(request)
    job = find_job(pk)
    return _changed(request, job, lambda: jobs.retry_job(job, by=user_of(request)))


@require_POST
def job_decide(request: HttpRequest, pk: int) -> HttpResponse:
    """`decision` approve or reject, with a note, about a job that waits for a second person."""
    check_may_operate(request)
    job, note, wanted = find_job(pk), request.POST.get("note", ""), request.POST.get("decision")
    if wanted not in ("approve", "reject"):
        raise Invalid(_("Nothing was decided."), _("Choose “Approve” or “Reject”."))
    act = approving.approve if wanted == "approve" else approving.reject
    return _changed(request, job, lambda: act(job, by=user_of(request), note=note))


def _changed(request: HttpRequest, job: Job, change: Callable[[], object]) -> HttpResponse:
    """Do it and show the job; a refusal stands above it in words."""
    with refusal_said(request):
        change()
    return redirect("deployments:job-detail", pk=job.pk)


@require_http_methods(["GET", "POST"])
def job_new(request: HttpRequest) -> HttpResponse:
    """The form of a kind beside what it will do; POST queues the job."""
    check_may_operate(request)
    if request.method == "GET" and (page := _own_page(request.GET)):
        return redirect(page)
    given = request.POST if request.method == "POST" else _prefilled(request.GET)
    if not {"server", forms.FULL} & set(given) and (name := only_server()):
        given = given.copy()
        given["server"] = name
    kind = given.get("kind") or kinds.offered()[0]
    module = jobs.find_kind(kind)
    params, problems = forms.read(module, given)
    server = Server.objects.filter(name=given.get("server", "")).first()
    refusal: ConsoleError | None = None
    wait = forms.FULL not in given or "wait" in given
    if request.method == "POST":
        try:
            if server and not problems and "confirmed" not in given and hasattr(module, "INTERRUPTS"):
                return _confirm(request, server, kind, params)
            return redirect("deployments:job-detail", pk=_queue(request, server, kind, params, problems, wait).pk)
        except ConsoleError as error:
            refusal = error
    elif forms.FULL not in given:
        problems = {}  # nobody has typed anything yet
    context = {
        "kind": kind,
        "kinds": list(dict.fromkeys([*kinds.offered(), kind])),
        "given": given,
        "server": server,
        "fields": forms.fields(module, params, problems, server),
        "refusal": refusal,
        "wait": wait,
        **consequence(module, kind, params, server),
    }
    context["found_wait"] = waiting.new(server, kind, context["locks"]) if server else None
    if is_part(request):
        return render(request, "deployments/_consequence.html", context)
    context |= {
        "servers": Server.objects.present().order_by("simulated", "name").only("name", "simulated", "rack", "family")
    }
    return render(request, "deployments/job_new.html", context, status=refusal.status if refusal else 200)


def _confirm(request: HttpRequest, server: Server, kind: str, params: dict[str, Any]) -> HttpResponse:
    """Ask whether it is meant, naming what is hit. Raises ConsoleError where it would be refused anyway."""
    module = jobs.find_kind(kind)
    jobs.check_role(user_of(request), module)
    read = jobs.checked_params(module, filling.filled(server, kind, module, params))
    root_access.check(server, module, read)
    back = request.POST.copy()
    back.pop("csrfmiddlewaretoken", None)
    context = {
        "kind": kind,
        "server": server,
        "interrupts": module.INTERRUPTS,
        "in_use": in_use.of(server),
        "steps": [step.title for step in module.steps(read)] if kind in filling.FILLERS else [],
        "repeated": [(name, value) for name, values in back.lists() for value in values],
        "needs_approval": approvals.is_needed(module),
        "back": f"{reverse('deployments:job-new')}?{back.urlencode()}",
    }
    return render(request, "deployments/job_confirm.html", context)


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
    return jobs.queue_job(server, kind, params, by=user_of(request), ticket=ticket, wait=wait)


def _again(query: QueryDict) -> Job | None:
    """The earlier job that again=<id> names. Raises NotFound."""
    pk = query.get("again", "")
    return find_job(int(pk)) if pk.isdecimal() and len(pk) <= 18 else None


def _own_page(query: QueryDict) -> str:
    """The page that asks for the kind of the earlier job, where this form is not the one; else ''."""
    job = _again(query)
    return own_pages.address(job.kind, filling.asked(job), job.server.name) if job and job.kind in kinds.names() else ""


def _prefilled(query: QueryDict) -> QueryDict:
    """The address' own values; with again=<job> those of an earlier job below them."""
    if not (job := _again(query)):
        return query
    filled = QueryDict(mutable=True)
    filled.update({"server": job.server.name, "kind": job.kind, "ticket": job.ticket})
    typed = getattr(jobs.find_kind(job.kind), "TYPED", ())
    for name, value in filling.asked(job).items():
        if name in typed:
            continue
        filled.setlist(
            forms.PREFIX + name, value if isinstance(value, list) else ["" if value is False else str(value)]
        )
    return filled


def consequence(module: ModuleType, kind: str, params: dict[str, Any], server: Server | None = None) -> dict[str, Any]:
    """What these parameters would do: steps with their commands, locks, and how long it usually takes."""
    found = {"usual_s": job_page.usual_total(kind), "interrupts": getattr(module, "INTERRUPTS", None)}
    found["needs_approval"] = approvals.is_needed(module)
    unknown: dict[str, Any] = {**found, "plan": None, "locks": [], "root_needed": False}
    if kind in filling.FILLERS and server is None:  # nobody knows the rest
        return unknown
    try:
        read = read_params(module.Params, filling.filled(server, kind, module, params) if server else params)
    except (BadParams, ConsoleError):
        return unknown
    plan = [(step, job_page.command_text(step.argv)) for step in module.steps(read)]
    return {**found, "plan": plan, "locks": module.locks(read), "root_needed": root_access.is_needed(module, read)}
