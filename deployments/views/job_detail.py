"""The page of one job: its state, steps and report, and what the script of its log starts from."""

from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from console.models import User
from console.templatetags.frame import texts_for_scripts
from deployments import forms, kinds, page_texts
from deployments.models import Attempt, Decision, Job
from deployments.models.job import ENDED
from deployments.services import approvals, approving, in_use, job_page, log_keeping
from deployments.templatetags.jobs import kind_title
from deployments.views import log_config, own_pages
from deployments.views.lookup import find_attempt, find_job, is_part, user_of


@require_GET
def job_detail(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    attempt, attempts = find_attempt(job, request.GET.get("attempt"))
    context = {"job": job, "attempt": attempt, "attempts": attempts, **job_page.shown(job, attempt, attempts)}
    context["log_gone"] = log_keeping.said(attempt)
    context["rest_call"] = job_page.rest_call(job, request.build_absolute_uri("/").rstrip("/"))
    context |= _approval(job, user_of(request))
    for item in context["items"]:
        item |= _applied_by(item.get("job"), job)
    if is_part(request):
        return render(request, "deployments/_job_live.html", context)
    context |= {"log": _log_config(job, attempt, attempts), "log_complete": bool(attempt and attempt.done)}
    context |= {"texts": texts_for_scripts(page_texts.JOB)}
    return render(request, "deployments/job_detail.html", context)


def _approval(job: Job, user: User) -> dict[str, Any]:
    """Who has decided about the job; where nobody has yet, what it hits and why `user` may not, if so."""
    asked = approvals.latest(job)
    if asked is None or asked.decision != Decision.WAITING or job.kind not in kinds.names():
        return {"approval": asked if asked and asked.decided_at else None}
    return {
        "approval": asked,
        "may_not_decide": approving.refusal(job, asked, user),
        "interrupts": getattr(kinds.load(job.kind), "INTERRUPTS", None),
        "in_use": in_use.of(job.server),
        "planned": [step.title for step in job_page.planned_steps(job.kind, job.params)],
    }


def _applied_by(remedy: dict[str, Any] | None, job: Job) -> dict[str, str]:
    """The form of the job that applies a remedy, filled in; its kind came from a server and may be none of ours."""
    if not remedy or remedy.get("kind") not in kinds.names():
        return {"job": ""}
    given = remedy.get("params")
    params = given if isinstance(given, dict) else {}
    title = kind_title(remedy["kind"])
    if page := own_pages.address(remedy["kind"], params, job.server.name):
        return {"job_url": page, "job_title": title}
    query = QueryDict(mutable=True)
    query.update({"server": job.server.name, "kind": str(remedy["kind"])})
    for name, value in list(params.items())[:50]:
        query.setlist(forms.PREFIX + str(name), [str(v) for v in value] if isinstance(value, list) else [str(value)])
    return {"job_url": f"{reverse('deployments:job-new')}?{query.urlencode()}", "job_title": title}


def _log_config(job: Job, attempt: Attempt | None, attempts: list[Attempt]) -> dict[str, Any]:
    """What static/js/topics/job.js starts from."""
    return {
        "job": job.pk,
        "attempt": attempt.pk if attempt else None,
        "newest": attempt is None or attempt is attempts[-1],
        "ended": bool(attempt and attempt.state in ENDED),
        "lines": reverse("deployments:job-lines", args=[job.pk]),
        **log_config.services(reverse("deployments:job-detail", args=[job.pk])),
        "started": int(attempt.started_at.timestamp() * 1000) if attempt and attempt.started_at else None,
    }
