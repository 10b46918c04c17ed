"""The page of queues, and what stops and starts a server's use of Redis: switching it on again, and new keys."""

from collections.abc import Callable

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.errors import ConsoleError, Invalid
from console.middleware import wants_json
from console.models import User
from deployments.models import Server
from deployments.services import queue_page, quota, rotation
from deployments.views.lookup import check_may_operate, find_server, is_part, refusal_said, user_of


@require_GET
def queue_list(request: HttpRequest) -> HttpResponse:
    check_may_operate(request)
    number = request.GET.get("page", "1")
    asked = {
        "every": request.GET.get("every") == "1",
        "word": request.GET.get("q", "").strip()[:63],
        "number": int(number) if number.isascii() and number.isdigit() and len(number) < 9 else 1,
    }
    context = {"page": queue_page.page(**asked), **asked}  # type: ignore[arg-type]
    if wants_json(request):
        return JsonResponse({"html": render_to_string("deployments/_queue_live.html", context, request)})
    part = is_part(request)
    return render(request, "deployments/_queue_live.html" if part else "deployments/queue_list.html", context)


@require_POST
def switch_on(request: HttpRequest, name: str) -> HttpResponse:
    """Let a server back into Redis that was switched off."""
    return _changed(request, name, quota.switch_on, _("%(name)s is switched on again; its agent comes back by itself."))


@require_POST
def keys_change(request: HttpRequest, name: str) -> HttpResponse:
    """New keys for one server."""
    return _changed(request, name, rotation.start, _("%(name)s gets new keys; its jobs go on meanwhile."))


def _changed(request: HttpRequest, name: str, change: Callable[..., object], words: str) -> HttpResponse:
    """Do it, and say on the server's page that it was done, or why not."""
    server = find_server(name)
    with refusal_said(request):
        change(server, by=user_of(request))
        messages.success(request, words % {"name": server.name})
    return redirect("monitoring:server-detail", name=server.name)


@require_http_methods(["GET", "POST"])
def key_list(request: HttpRequest) -> HttpResponse:
    """GET: how old the keys of each real server are. POST: new ones for those that are chosen (`server`)."""
    user = user_of(request)
    rotation.check_may(user)
    if request.method == "POST":
        _change_many(request, user)
        return redirect("deployments:key-list")
    rows = Server.objects.present().filter(simulated=False).defer("facts").select_related("rotation").order_by("name")
    return render(request, "deployments/key_list.html", {"servers": rows})


def _change_many(request: HttpRequest, user: User) -> None:
    names = request.POST.getlist("server")
    try:
        if not names:
            raise Invalid(_("No server was chosen."), _("Choose those that are to get new keys."))
        chosen = Server.objects.filter(name__in=names[:5000]).order_by("name")
        begun, refused = rotation.start_all(chosen, by=user)
    except ConsoleError as error:
        messages.error(request, f"{error.what} {error.do}")
        return
    if begun:
        n = len(begun)
        messages.success(request, ngettext("%(n)s server gets new keys.", "%(n)s servers get new keys.", n) % {"n": n})
    for _row, why in refused[:10]:
        messages.warning(request, f"{why.what} {why.do}")
    if len(refused) > 10:
        n = len(refused) - 10
        messages.warning(request, ngettext("and %(n)s more", "and %(n)s more", n) % {"n": n})
