"""What is done to a deployment: pages that ask once more and name what is hit, and forms about it."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from console.errors import ConsoleError, Invalid
from console.models import User
from deployments.models import Deployment
from deployments.services import (
    deployment_about,
    deployment_hits,
    deployment_page,
    deployment_schedule,
    deployments,
    revisions,
    scaling,
)
from deployments.services.deployment_hits import Hit
from deployments.services.deployment_page import Page
from deployments.serving import faults
from deployments.views.lookup import check_may_operate, find_deployment, refusal_said, user_of

Act = Callable[[Deployment, User], object]


@require_http_methods(["GET", "POST"])
def deployment_scale(request: HttpRequest, name: str) -> HttpResponse:
    """GET with `replicas` says what that number would do; POST does it."""
    check_may_operate(request)
    deployment = find_deployment(name)
    page = deployment_page.of(deployment)
    given = request.POST if request.method == "POST" else request.GET
    asked, hit, refusal = given.get("replicas", ""), None, None
    try:
        number = _number(asked) if asked else None
        if request.method == "POST":
            scaling.scale(deployment, _number(asked), by=user_of(request))
            return _done(name)
        hit = deployment_hits.of_scale(page, number) if number is not None else None
    except ConsoleError as error:
        refusal = error
    more = {"asked": asked or deployment.replicas, "chosen": hit is not None}
    return _ask(request, page, "scale", hit, refusal, more)


def _number(text: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise Invalid(_("The number of replicas must be a whole number from 0."), _("Give such a number."))
    return int(text)


@require_http_methods(["GET", "POST"])
def deployment_stop(request: HttpRequest, name: str) -> HttpResponse:
    return _confirmed(request, name, "stop", deployment_hits.of_end, lambda row, by: deployments.stop(row, by=by))


@require_http_methods(["GET", "POST"])
def deployment_start(request: HttpRequest, name: str) -> HttpResponse:
    def hit(page: Page) -> Hit:
        return deployment_hits.of_scale(page, page.deployment.replicas)

    return _confirmed(request, name, "start", hit, lambda row, by: deployments.start(row, by=by))


@require_http_methods(["GET", "POST"])
def deployment_restart(request: HttpRequest, name: str) -> HttpResponse:
    """`n` (several): these replicas; without it all of them."""
    given = request.POST if request.method == "POST" else request.GET
    numbers = [int(n) for n in given.getlist("n") if n.isascii() and n.isdigit() and len(n) < 10]
    return _confirmed(
        request, name, "restart", lambda page: deployment_hits.of_restart(page, numbers),
        lambda row, by: deployments.restart(row, by=by, replicas=numbers), {"numbers": numbers},
    )  # fmt: skip


@require_http_methods(["GET", "POST"])
def revision_back(request: HttpRequest, name: str, n: int) -> HttpResponse:
    """`how`: in_place, or surge where there is room for a new one before an old one goes."""
    given = request.POST if request.method == "POST" else request.GET
    how = given.get("how", "") or revisions.HOWS[0]
    return _confirmed(
        request, name, "back", lambda page: deployment_hits.of_back(page, n, how),
        lambda row, by: revisions.back(row, n, by=by, how=how), {"n": n, "how": how},
    )  # fmt: skip


@require_http_methods(["GET", "POST"])
def deployment_delete(request: HttpRequest, name: str) -> HttpResponse:
    """Its name has to be typed; only what holds nothing can be deleted."""
    check_may_operate(request)
    deployment = find_deployment(name)
    page, refusal = deployment_page.of(deployment), None
    if request.method == "POST":
        try:
            deployments.delete(deployment, by=user_of(request), confirm=request.POST.get("confirm", "").strip())
        except ConsoleError as error:
            refusal = error
        else:
            messages.success(request, _("%(name)s was deleted. Its history stays.") % {"name": name})
            return redirect("deployments:deployment-list")
    return _ask(request, page, "delete", Hit(page.lines, ends=bool(page.lines)), refusal)


def _confirmed(
    request: HttpRequest, name: str, what: str, hit: Callable[[Page], Hit], act: Act, more: dict[str, Any] | None = None
) -> HttpResponse:
    """GET asks and names what is hit; POST acts, and asks again with the reason where that is refused."""
    check_may_operate(request)
    deployment = find_deployment(name)
    page, refusal, found = deployment_page.of(deployment), None, None
    try:
        if request.method == "POST":
            act(deployment, user_of(request))
            return _done(name)
        found = hit(page)
    except ConsoleError as error:
        refusal = error
    return _ask(request, page, what, found, refusal, more)


def _ask(
    request: HttpRequest, page: Page, what: str, hit: Hit | None, refusal: ConsoleError | None,
    more: dict[str, Any] | None = None,
) -> HttpResponse:  # fmt: skip
    context = {
        "deployment": page.deployment,
        "page": page,
        "what": what,
        "hit": hit,
        "refusal": refusal,
        **(more or {}),
    }
    status = refusal.status if refusal and request.method == "POST" else 200
    return render(request, "deployments/deployment_ask.html", context, status=status)


def _done(name: str) -> HttpResponse:
    return redirect("deployments:deployment-detail", name=name)


@require_POST
def deployment_pause(request: HttpRequest, name: str) -> HttpResponse:
    return _at_once(request, name, lambda row, by: deployments.pause(row, by=by))


@require_POST
def deployment_resume(request: HttpRequest, name: str) -> HttpResponse:
    return _at_once(request, name, lambda row, by: deployments.resume(row, by=by))


@require_POST
def rollout_abort(request: HttpRequest, name: str) -> HttpResponse:
    return _at_once(request, name, lambda row, by: revisions.abort(row, by=by))


@require_POST
def rollout_pause(request: HttpRequest, name: str) -> HttpResponse:
    """`on` = 1 lets the rollout wait where it is, anything else lets it go on."""
    on = request.POST.get("on") == "1"
    return _at_once(request, name, lambda row, by: deployments.set_rollout_paused(row, on, by=by))


def _at_once(request: HttpRequest, name: str, act: Act) -> HttpResponse:
    check_may_operate(request)
    deployment = find_deployment(name)
    with refusal_said(request):
        act(deployment, user_of(request))
    return _done(name)


@require_http_methods(["GET", "POST"])
def deployment_schedule_page(request: HttpRequest, name: str) -> HttpResponse:
    """Replicas by day and time."""
    check_may_operate(request)
    deployment = find_deployment(name)
    rows, refusal = deployment.schedule, None
    if request.method == "POST":
        rows = deployment_schedule.read(request.POST)
        try:
            deployments.set_schedule(deployment, rows, by=user_of(request))
            return _done(name)
        except ConsoleError as error:
            refusal = error
    context = {"deployment": deployment, "fields": deployment_schedule.fields(rows), "refusal": refusal}
    return _form(request, "deployments/deployment_schedule.html", context, refusal)


@require_http_methods(["GET", "POST"])
def deployment_edit(request: HttpRequest, name: str) -> HttpResponse:
    """Title, notes, labels, owner, how long running requests get."""
    check_may_operate(request)
    deployment = find_deployment(name)
    labels = "\n".join(f"{key}={value}" if value else key for key, value in deployment.labels.items())
    given: Any = {
        "title": deployment.title, "notes": deployment.notes, "labels": labels, "drain": f"{deployment.drain_s / 60:g}",
        "owner": deployment.owner.username if deployment.owner else "",
    }  # fmt: skip
    refusal = None
    if request.method == "POST":
        given = request.POST
        try:
            deployment_about.edit(deployment, given, by=user_of(request))
            return _done(name)
        except ConsoleError as error:
            refusal = error
    users = User.objects.filter(is_active=True).order_by("username").values_list("username", flat=True)[:500]
    context = {
        "deployment": deployment, "given": given, "users": users, "refusal": refusal, "faults": tuple(faults.OF_START),
    }  # fmt: skip
    return _form(request, "deployments/deployment_edit.html", context, refusal)


def _form(request: HttpRequest, page: str, context: dict[str, Any], refusal: ConsoleError | None) -> HttpResponse:
    return render(request, page, context, status=refusal.status if refusal else 200)
