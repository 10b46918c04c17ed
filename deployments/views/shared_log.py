"""Links to logs: made and withdrawn by operators, opened by whoever has one, who needs no account.

What is behind a link shows one log and nothing else: no session, no live socket, no other page. It is not kept by
browsers, not found by search engines, and its address is told to nobody.
"""

from collections.abc import Callable
from functools import wraps

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_GET, require_POST

from console.errors import ConsoleError, Invalid, NotFound
from console.templatetags.frame import texts_for_scripts
from deployments import page_texts
from deployments.asked_logs import range_of
from deployments.models import Attempt, EngineLog, LogShare
from deployments.services import engine_logs, log_keeping, log_shares, logs
from deployments.views.lookup import find_attempt, find_job, find_replica, user_of

View = Callable[..., HttpResponseBase]


@require_POST
def job_share(request: HttpRequest, pk: int) -> HttpResponse:
    """Makes a link to the log of an attempt and shows it, this once."""
    job = find_job(pk)
    attempt, _every = find_attempt(job, request.POST.get("attempt"))
    back = reverse("deployments:job-detail", args=[pk])
    return _made(request, attempt, back, f"#{job.pk} · {job.server.name}")


@require_POST
def replica_share(request: HttpRequest, name: str, n: int) -> HttpResponse:
    replica = find_replica(name, n)
    piece = engine_logs.find(replica, request.POST.get("piece", ""))
    back = reverse("deployments:replica-log", args=[name, n])
    return _made(request, piece, back, f"{name} #{n} · {replica.server.name}")


def _made(request: HttpRequest, head: Attempt | EngineLog | None, back: str, title: str) -> HttpResponse:
    if head is None:
        raise NotFound(_("There is no log yet."), _("Make the link when it has its first lines."), code="no_such_log")
    hours = request.POST.get("hours", "")
    if not (hours.isascii() and hours.isdigit() and len(hours) < 5):
        raise Invalid(_("A link needs a time until which it works."), _("Choose one, then make the link again."))
    made = log_shares.make(head, int(hours), by=user_of(request))
    url = request.build_absolute_uri(made.path)
    context = {"made": made, "url": url, "back": back, "title": title}
    response = render(request, "deployments/log_share_made.html", context)
    response.headers["Cache-Control"] = "no-store"
    return response


@require_POST
def share_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    share = log_shares.revoke(log_shares.find(pk), by=user_of(request))
    if share.attempt:
        return redirect(f"{reverse('deployments:job-detail', args=[share.attempt.job_id])}#shares")
    assert share.piece is not None
    replica = share.piece.replica
    return redirect(f"{reverse('deployments:replica-log', args=[replica.deployment.name, replica.n])}#shares")


def _for_anybody(view: View) -> View:
    """Needs no account; answers no faster than the rate, in words where it refuses, and leaves no trace in browsers."""

    @wraps(view)
    def answer(request: HttpRequest, token: str) -> HttpResponseBase:
        address = str(request.META.get("REMOTE_ADDR", ""))[:45]
        try:
            log_shares.check_rate(address)
            response: HttpResponseBase = view(request, log_shares.by_token(token))
        except ConsoleError as error:
            if error.code == "no_such_link":
                log_shares.GUESSES.count(address)
            response = _refused(request, error)
        response.headers["Cache-Control"] = "no-store"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["X-Robots-Tag"] = "noindex, nofollow, noarchive"
        return response

    return login_not_required(answer)


def _refused(request: HttpRequest, error: ConsoleError) -> HttpResponse:
    if request.path.endswith("/lines"):
        return JsonResponse(error.as_json(), status=error.status)
    return render(request, "deployments/shared_refused.html", {"error": error}, status=error.status)


@require_GET
@_for_anybody
def shared_log(request: HttpRequest, share: LogShare) -> HttpResponse:
    log_keeping.check_kept(share.head)
    log_shares.opened(share, str(request.META.get("REMOTE_ADDR", ""))[:45])
    head = share.head
    started = int(head.started_at.timestamp() * 1000) if head.started_at else None
    context = {
        "share": share, "attempt": share.attempt, "piece": share.piece, "complete": head.done,
        "log": {"lines": f"{request.path.rstrip('/')}/lines", "started": started, "ended": head.done},
        "texts": texts_for_scripts(page_texts.JOB + page_texts.ENGINE_LOG + page_texts.SHARED_LOG),
    }  # fmt: skip
    return render(request, "deployments/shared_log.html", context)


@require_GET
@gzip_page
@_for_anybody
def shared_lines(request: HttpRequest, share: LogShare) -> JsonResponse:
    """Raw records of this log alone: after=, before= or neither (the tail), at most n= of them."""
    head = share.head
    log_keeping.check_kept(head)
    found = logs.asked(head, *range_of(request))
    return JsonResponse(
        {"attempt": None, **vars(found), "done": head.done, "state": "ended" if head.done else "running"}
    )
