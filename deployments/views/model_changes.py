"""What the pages of models change: name and notes, looking for models, deleting a copy."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from console.errors import ConsoleError
from deployments.kinds.model_delete import INTERRUPTS
from deployments.services import model_changes as changes
from deployments.services import model_delete as deleting
from deployments.views.lookup import check_may_operate, find_server, user_of


@require_http_methods(["GET", "POST"])
def model_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Its name and notes."""
    check_may_operate(request)
    artifact, refusal = changes.find(pk), None
    name, notes = artifact.name, artifact.notes
    if request.method == "POST":
        name, notes = request.POST.get("name", ""), request.POST.get("notes", "")
        try:
            changes.edit(pk, name=name, notes=notes, by=user_of(request))
            return redirect("deployments:model-detail", pk=pk)
        except ConsoleError as error:
            refusal = error
    context = {"artifact": artifact, "name": name, "notes": notes, "refusal": refusal}
    return render(request, "deployments/model_edit.html", context, status=refusal.status if refusal else 200)


@require_http_methods(["GET", "POST"])
def model_scan(request: HttpRequest) -> HttpResponse:
    """`server` is looked through: a `folder` of it, or with `again` every copy that is known, or the one at `path`."""
    check_may_operate(request)
    if request.method == "GET":
        return redirect(f"{reverse('deployments:model-list')}#scan")
    digests = bool(request.POST.get("digests"))
    try:
        server = find_server(request.POST.get("server", "").strip())
        if "again" in request.POST:
            job = changes.look_again(
                server, by=user_of(request), only=request.POST.get("path", "")[:1000], digests=digests
            )
        else:
            job = changes.scan(server, request.POST.get("folder", ""), digests=digests, by=user_of(request))
    except ConsoleError as error:
        messages.error(request, f"{error.what} {error.do}")
        return redirect("deployments:model-list")
    return redirect("deployments:job-detail", pk=job.pk)


@require_http_methods(["GET", "POST"])
def model_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """GET names what is hit; POST queues the job, with the name typed where it is the last whole copy."""
    check_may_operate(request)
    place, refusal = deleting.find(pk), None
    if request.method == "POST":
        confirm, ticket = request.POST.get("confirm", ""), request.POST.get("ticket", "").strip()
        try:
            job = deleting.queue(place, confirm=confirm, by=user_of(request), ticket=ticket)
            return redirect("deployments:job-detail", pk=job.pk)
        except ConsoleError as error:
            refusal = error
    try:
        asked = deleting.asked(place)
    except ConsoleError as error:
        messages.error(request, f"{error.what} {error.do}")
        return redirect("deployments:model-detail", pk=place.artifact_id)
    context = {
        "place": place, "asked": asked, "refusal": refusal, "interrupts": INTERRUPTS,
        "given": request.POST if request.method == "POST" else {},
    }  # fmt: skip
    return render(request, "deployments/model_delete.html", context, status=refusal.status if refusal else 200)
