"""Install a stack on a server, go back to another that lies there, uninstall one: each asks, then queues a job."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from console.errors import ConsoleError
from deployments.models import Server
from deployments.services import faults, filling, host_changes, in_use, installs, jobs, npu_choice, stacks, waiting
from deployments.stacks.options import CHOICES
from deployments.stacks.plan import Plan
from deployments.views.lookup import check_may_operate, find_server, user_of


@require_http_methods(["GET", "POST"])
def stack_install(request: HttpRequest, name: str, server: str) -> HttpResponse:
    """GET shows what an installation would run and hit; POST queues it where the plan is still the one shown."""
    check_may_operate(request)
    stack, found = stacks.find(name), find_server(server)
    given = request.POST if request.method == "POST" else request.GET
    chosen = {one: given[one].strip()[:300] for one in CHOICES if given.get(one, "").strip()}
    made = installs.plan_of(found, stack, installs.options_for(found, chosen, stack))
    digest = installs.digest(made)
    more = {
        "plan": made, "seen": digest, "chosen": chosen, "addresses": made.addresses, "fault": given.get("fault", ""),
        "faults": faults.possible(made) if found.simulated else [],
    }  # fmt: skip

    def queue() -> Any:
        installs.check_shown(found, given.get("seen", ""), digest)
        params = {one: value for one, value in chosen.items() if one != "account"}
        if fault := given.get("fault", ""):
            params["fault"] = fault
        return jobs.queue_job(found, "install", {"stack": name, **params}, by=user_of(request), ticket=_ticket(request))

    return _asked(request, found, "install", name, queue, installs.obstacle(found, made), more)


@require_http_methods(["GET", "POST"])
def stack_rollback(request: HttpRequest, name: str, server: str) -> HttpResponse:
    """Make another stack that lies on the server the one in use."""
    return _simple(request, "rollback", name, server)


@require_http_methods(["GET", "POST"])
def stack_uninstall(request: HttpRequest, name: str, server: str) -> HttpResponse:
    return _simple(request, "uninstall", name, server)


def _simple(request: HttpRequest, kind: str, name: str, server: str) -> HttpResponse:
    check_may_operate(request)
    found = find_server(server)
    wrong: ConsoleError | None = None
    try:
        filling.FILLERS[kind](found, {"stack": name})
    except ConsoleError as error:
        wrong = error
    more = {"is_current": installs.beside(found).current == name}

    def queue() -> Any:
        return jobs.queue_job(found, kind, {"stack": name}, by=user_of(request), ticket=_ticket(request))

    return _asked(request, found, kind, name, queue, wrong, more)


def _asked(
    request: HttpRequest, server: Server, kind: str, stack: str, queue: Any, wrong: ConsoleError | None,
    more: dict[str, Any],
) -> HttpResponse:  # fmt: skip
    """The page that asks; what keeps it from being queued stands on it instead of the button."""
    refusal = wrong
    if request.method == "POST" and wrong is None:
        try:
            return redirect("deployments:job-detail", pk=queue().pk)
        except ConsoleError as error:
            refusal = error
    module = jobs.find_kind(kind)
    context = {
        "kind": kind,
        "server": server,
        "stack": stack,
        "interrupts": module.INTERRUPTS,
        "in_use": in_use.of(server),
        "refusal": refusal,
        "cannot": wrong is not None,
        "found_wait": waiting.new(server, kind, _locks(server, more.get("plan"))),
        "ticket": request.POST.get("ticket", ""),
        **more,
    }
    status = refusal.status if refusal and request.method == "POST" else 200
    return render(request, "deployments/stack_job.html", context, status=status)


def _locks(server: Server, made: Plan | None) -> list[str]:
    if made and made.changes_host:
        return ["stack", *host_changes.locks(server)]
    tried = npu_choice.names_of_one(server) if made and installs.tries_npu(made) else []
    return ["stack", *(f"{waiting.NPU_LOCK}{name}" for name in tried)]


def _ticket(request: HttpRequest) -> str:
    return request.POST.get("ticket", "").strip()
