"""Change driver and firmware of a server, and the packages whose digests root goes by."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from console.errors import ConsoleError, Invalid
from deployments.models import Server, VendorPackage
from deployments.services import host_changes, in_use, installs, jobs, packages, stacks, waiting
from deployments.stacks import actions
from deployments.stacks.options import RESTARTS, Options
from deployments.views.lookup import check_may_operate, find_server, refusal_said, user_of

NAMES = ("driver", "firmware", "restart", "window")


@require_http_methods(["GET", "POST"])
def server_drivers(request: HttpRequest, name: str) -> HttpResponse:
    """GET shows the plan for the versions that are named; POST queues it where it is still the one shown."""
    check_may_operate(request)
    server = find_server(name)
    given = request.POST if request.method == "POST" else request.GET
    chosen = {one: given[one].strip()[:60] for one in NAMES if given.get(one, "").strip()}
    options, refusal, made, wrong = Options(), None, None, None
    try:
        options = stacks.read_options(chosen)
        if chosen.get("driver") or chosen.get("firmware"):
            made = stacks.host_plan_for(server, options, None)
            wrong = installs.obstacle(server, made)
    except ConsoleError as error:
        refusal = error
    digest = installs.digest(made) if made else ""
    if request.method == "POST" and made and not wrong:
        try:
            _check_confirmed(request, server, digest)
            job = jobs.queue_job(server, "drivers", chosen, by=user_of(request), ticket=request.POST.get("ticket", ""))
            return redirect("deployments:job-detail", pk=job.pk)
        except ConsoleError as error:
            refusal = error
    context: dict[str, Any] = {
        "server": server,
        "now": host_changes.now(server),
        "failure": server.host_failure,
        "chosen": chosen,
        "options": options,
        "restarts": RESTARTS,
        "plan": made,
        "seen": digest,
        "refusal": refusal or (wrong if wrong and wrong.code != "gaps" else None),  # gaps stand beside the button
        "cannot": wrong is not None,
        "interrupts": jobs.find_kind("drivers").INTERRUPTS,
        "in_use": in_use.of(server),
        "found_wait": waiting.new(server, "drivers", ["stack", *host_changes.locks(server)]),
    }
    problem = refusal or (wrong if request.method == "POST" else None)
    return render(request, "deployments/server_drivers.html", context, status=problem.status if problem else 200)


def _check_confirmed(request: HttpRequest, server: Server, digest: str) -> None:
    """Raises Conflict for another plan than was shown, Invalid where the server's name was not typed."""
    installs.check_shown(server, request.POST.get("seen", ""), digest)
    if request.POST.get("confirm", "").strip() != server.name:
        raise Invalid(
            _("What was typed is not the name of the server."),
            _("Type %(name)s to confirm.") % {"name": server.name},
            code="not_confirmed",
        )


@require_http_methods(["GET", "POST"])
def package_list(request: HttpRequest) -> HttpResponse:
    """GET: the packages whose digest is known. POST: note one, or with `forget` take one away."""
    if request.method == "POST":
        user, given = user_of(request), request.POST
        with refusal_said(request):
            if name := given.get("forget", ""):
                packages.remove(name, by=user)
                messages.success(request, _("The digest of %(name)s is forgotten.") % {"name": name[:200]})
            else:
                for name, digest in _lines(given.get("lines", "")):
                    row = packages.put(name, digest, by=user, source=given.get("source", ""))
                    messages.success(request, _("The digest of %(name)s is noted.") % {"name": row.name})
        return redirect("deployments:stack-packages")
    rows = VendorPackage.objects.select_related("added_by")
    return render(request, "deployments/package_list.html", {"rows": rows, "folder": actions.PACKAGES})


MOST_LINES = 200


def _lines(text: str) -> list[tuple[str, str]]:
    """[(file name, digest)] of what sha256sum prints. Raises Invalid where nothing of it is there."""
    pairs = [line.split(None, 1) for line in text.splitlines()[:MOST_LINES] if line.strip()]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise Invalid(
            _("These are no lines of sha256sum."),
            _("Paste lines such as “<64 digits>  Ascend-….run”."),
            code="bad_lines",
        )
    return [(pair[1].strip().removeprefix("*").rpartition("/")[2], pair[0]) for pair in pairs]
