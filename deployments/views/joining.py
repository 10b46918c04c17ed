"""How servers join: pages for administrators, and what the script on the server asks for, by its token alone."""

import json
from collections.abc import AsyncIterator, Callable
from functools import wraps
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.http.request import RawPostDataException
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console import addresses
from console.errors import Conflict, ConsoleError, Invalid, NotFound
from console.middleware import wants_json
from deployments import join_texts, kinds
from deployments.agent import root_install
from deployments.agent.join import ACCOUNT
from deployments.models import Enrolment, Server
from deployments.services import bundle, inventory, join, join_script, runtimes, signed_calls
from deployments.views.lookup import find_server, is_part, user_of

SHOWN = 20
MAX_BODY = 2000
PIECE = 1 << 20
PREFIX = "/opt/ascend-console"  # where the script installs as root unless it is told otherwise

# ---------- for the script on the server ----------

View = Callable[..., HttpResponseBase]


def by_token(view: View) -> View:
    """A view for the holder of a token; a refusal is two sentences of plain text, which the terminal shows."""

    @wraps(view)
    def answer(request: HttpRequest, token: str, **named: Any) -> HttpResponseBase:
        try:
            caller = request.META.get("REMOTE_ADDR", "")
            found = join.find(token[:100], caller=caller, secure=request.is_secure())
            response = view(request, found, **named)
        except ConsoleError as error:
            response = _plain(f"{error.what} {error.do}\n", error.status)
        response.headers["Cache-Control"] = "no-store"
        return response

    return csrf_exempt(login_not_required(answer))


def _plain(text: str, status: int = 200) -> HttpResponse:
    return HttpResponse(text, content_type="text/plain; charset=utf-8", status=status)


def _body(request: HttpRequest) -> bytes:
    """The beginning of what was sent. Raises Invalid for a form, which has been read as one already."""
    try:
        return request.body[:MAX_BODY]
    except RawPostDataException:
        raise Invalid(_("The request could not be understood."), _("Go back and try again."), status=400) from None


@by_token
@require_GET
def script(request: HttpRequest, enrolment: Enrolment) -> HttpResponseBase:
    """The script, as long as the command is good; used or not, for running it again repairs."""
    join.check_open(enrolment)
    text = join_script.script(enrolment)
    if join_script.digest(text) != enrolment.script_digest:
        raise Conflict(
            _("The console has changed since this command was made, so its digest is no longer true."),
            _("Make a new one for %(name)s on the page “Join a server”.") % {"name": enrolment.server.name},
            code="script_changed",
        )
    join.called(enrolment, request.META.get("REMOTE_ADDR", ""))
    return _plain(text)


@by_token
@require_GET
def agent(request: HttpRequest, enrolment: Enrolment) -> HttpResponseBase:
    join.check_open(enrolment)
    return HttpResponse(bundle.agent().data, content_type="application/gzip")


@by_token
@require_GET
def runtime(request: HttpRequest, enrolment: Enrolment, machine: str) -> HttpResponseBase:
    join.check_open(enrolment)
    found = runtimes.present().get(machine)
    if found is None:
        raise NotFound(
            _("The console has no Python for %(machine)s.") % {"machine": machine[:20]},
            _("Let an administrator run: manage.py runtimes add FILE --sha256 DIGEST"),
            code="no_runtime",
        )
    response = StreamingHttpResponse(_pieces(found.path), content_type="application/gzip")
    response.headers["Content-Length"] = str(found.size)
    return response


async def _pieces(path: Path, begin: int = 0) -> AsyncIterator[bytes]:
    """A file piece by piece: a sync iterator would be read whole before the first byte under ASGI."""
    with path.open("rb") as file:
        file.seek(begin)
        while piece := await sync_to_async(file.read)(PIECE):
            yield piece


@by_token
@require_POST
def config(request: HttpRequest, enrolment: Enrolment) -> HttpResponseBase:
    """The server's own config with its credentials, once."""
    return JsonResponse(join.config(enrolment))


@by_token
@require_GET
def state(request: HttpRequest, enrolment: Enrolment) -> HttpResponseBase:
    """waiting, called, used, online or reading; below it how many seconds ago the server was last heard, or nothing."""
    age = join.heard_s_ago(enrolment.server)
    return _plain(f"{join.progress(enrolment)}\n{'' if age is None else round(age, 2)}\n")


@by_token
@require_POST
def problem(request: HttpRequest, enrolment: Enrolment) -> HttpResponseBase:
    """What stopped the script: "<code> <detail>"."""
    join.check_open(enrolment)
    code, _blank, detail = _body(request).decode(errors="replace").partition(" ")
    join.trouble(enrolment, code, detail)
    return _plain("")


def signed(answer: Callable[[str, str], HttpResponseBase]) -> Callable[[HttpRequest], HttpResponseBase]:
    """A view of POST {"body", "mac"} for servers, which have no session: `answer` judges the signature."""

    @csrf_exempt
    @login_not_required
    @require_POST
    @wraps(answer)
    def view(request: HttpRequest) -> HttpResponseBase:
        try:
            told = json.loads(_body(request))
            return answer(str(told["body"]), str(told["mac"]))
        except ConsoleError as error:
            return _plain(f"{error.what} {error.do}\n", error.status)
        except (ValueError, TypeError, KeyError, RecursionError):
            return _plain("", 400)

    return view


@signed
def left(body: str, mac: str) -> HttpResponseBase:
    """A server's goodbye."""
    signed_calls.leave(body, mac)
    return _plain("")


@signed
def code(body: str, mac: str) -> HttpResponseBase:
    """The agent's bundle, for a server that is to be upgraded."""
    return HttpResponse(signed_calls.code(body, mac).data, content_type="application/gzip")


@signed
def indexes(body: str, mac: str) -> HttpResponseBase:
    """How to get at the site's package indexes, sealed for the server."""
    return HttpResponse(
        signed_calls.indexes(body, mac), content_type="application/octet-stream", headers={"Cache-Control": "no-store"}
    )


@signed
def wheels(body: str, mac: str) -> HttpResponseBase:
    """A file of a bundle."""
    path = signed_calls.wheels(body, mac)
    response = StreamingHttpResponse(_pieces(path), content_type="application/octet-stream")
    response.headers["Content-Length"] = str(path.stat().st_size)
    return response


@signed
def models(body: str, mac: str) -> HttpResponseBase:
    """How to get at the site's hubs of models, sealed for the server."""
    return HttpResponse(
        signed_calls.models(body, mac), content_type="application/octet-stream", headers={"Cache-Control": "no-store"}
    )


@signed
def upload(body: str, mac: str) -> HttpResponseBase:
    """A file of an upload, from where the server has got to."""
    path, begin = signed_calls.upload(body, mac)
    response = StreamingHttpResponse(_pieces(path, begin), content_type="application/octet-stream")
    response.headers["Content-Length"] = str(path.stat().st_size - begin)
    return response


# ---------- for administrators ----------


@require_http_methods(["GET", "POST"])
def join_new(request: HttpRequest) -> HttpResponse:
    """The form, and the commands made last; POST makes one."""
    join.check_may_administer(user_of(request))
    refusal: ConsoleError | None = None
    given = {name: request.POST.get(name, request.GET.get(name, "")) for name in ("name", "rack", "labels")}
    if request.method == "POST":
        try:
            return redirect("deployments:join-detail", pk=_make(request, given).pk)
        except ConsoleError as error:
            refusal = error
    else:
        try:
            join.check_reach()
        except ConsoleError as error:
            refusal = error
    recent = list(Enrolment.objects.select_related("server", "made_by")[:SHOWN])
    context = {
        "given": given,
        "refusal": refusal,
        "rows": [(one, join_texts.WORDS[_state(one)]) for one in recent],
        "joined": Server.objects.filter(enrolments__used_at__isnull=False).distinct().order_by("name"),
        "local_only": join.is_local_only(),
        "url": addresses.public_url(),
        "machines": _machines(),
        "no_root": "no_root" in request.POST,
        **_root_texts(),
    }
    status = refusal.status if refusal and request.method == "POST" else 200
    return render(request, "deployments/join_new.html", context, status=status)


def _make(request: HttpRequest, given: dict[str, str]) -> Enrolment:
    labels = inventory.read_labels(given["labels"])
    by = user_of(request)
    enrolment = join.make(given["name"], given["rack"], labels, by=by, root_helper="no_root" not in request.POST)
    enrolment.script_digest = join_script.digest(join_script.script(enrolment))
    enrolment.save(update_fields=["script_digest"])
    return enrolment


def _machines() -> list[tuple[str, runtimes.Runtime | None]]:
    present = runtimes.present()
    return [(machine, present.get(machine)) for machine in ("aarch64", "x86_64")]


def _root_texts() -> dict[str, Any]:
    """What joining as root would install for root, as it stands in the files."""
    helper = f"{PREFIX}/bin/root-helper"
    return {
        "root_texts": [
            (str(root_install.SUDOERS), root_install.sudoers(ACCOUNT, helper)),
            (helper, root_install.text(root_install.SYSTEM_PYTHONS[0])),
        ],
        "root_kinds": kinds.that_need_root(),
    }


def _state(enrolment: Enrolment) -> str:
    """How far it has come, without asking Redis; expired where it was never used."""
    if enrolment.used_at is None and enrolment.is_expired:
        return "expired"
    names = ("reading", "online")
    done = next((name for name in names if name in enrolment.steps), None)
    return done or ("used" if enrolment.used_at else "called" if "called" in enrolment.steps else "waiting")


@require_GET
def join_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """One command with its live steps."""
    join.check_may_administer(user_of(request))
    enrolment = _enrolment(pk)
    reached = join.progress(enrolment)
    context = {
        "enrolment": enrolment,
        "server": enrolment.server,
        "steps": join_texts.steps(enrolment, reached),
        "problems": join_texts.problems(enrolment),
        "unheard": join_texts.unheard(enrolment),
        "console_address": addresses.public_url(),
        "done": reached == "reading",
        "over": enrolment.is_expired and enrolment.used_at is None,
    }
    if wants_json(request):
        return JsonResponse({"html": render_to_string("deployments/_join_steps.html", context, request)})
    if is_part(request):
        return render(request, "deployments/_join_steps.html", context)
    context |= {
        "commands": [] if context["over"] else join_script.commands(enrolment),
        "trouble": join_texts.TROUBLE.values(),
        "machines": _machines(),
        "without_root": not enrolment.root_helper,
        **_root_texts(),
    }
    return render(request, "deployments/join_detail.html", context)


def _enrolment(pk: int) -> Enrolment:
    found = Enrolment.objects.select_related("server", "made_by").filter(pk=pk).first()
    if found is None:
        raise NotFound(
            _("There is no such command for joining."), _("Choose one on the page “Join a server”, or make one.")
        )
    return found


@require_POST
def join_copied(request: HttpRequest, pk: int) -> HttpResponse:
    """The command was copied: the first of the live steps."""
    join.check_may_administer(user_of(request))
    join.copied(_enrolment(pk))
    return HttpResponse(status=204)


@require_POST
def join_withdraw(request: HttpRequest, pk: int) -> HttpResponse:
    join.check_may_administer(user_of(request))
    enrolment = _enrolment(pk)
    join.withdraw(enrolment, by=user_of(request))
    messages.success(request, _("The command for %(name)s is void.") % {"name": enrolment.server.name})
    return redirect("deployments:join-new")


@require_http_methods(["GET", "POST"])
def server_leave(request: HttpRequest, name: str) -> HttpResponse:
    """GET asks whether it is meant, naming what is hit; POST takes the credentials away."""
    join.check_may_administer(user_of(request))
    server = find_server(name)
    if request.method == "GET":
        return render(request, "deployments/server_leave.html", {"server": server, "under_way": join.under_way(server)})
    join.leave(server, by=user_of(request))
    told = _("%(name)s may no longer speak to this console. Its record stays.") % {"name": server.name}
    messages.success(request, told)
    return redirect("deployments:join-new")
