"""Pages that bring models to servers: what to download, what the look at it found, the job; copies; uploads."""

import json
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.errors import ConsoleError, Invalid, NotFound
from console.middleware import wants_json
from console.templatetags.frame import texts_for_scripts
from deployments import kinds
from deployments.kinds.download import SOURCES
from deployments.models import Server
from deployments.page_texts import UPLOAD
from deployments.services import in_use, model_copies, model_downloads, model_sources, model_uploads
from deployments.views.lookup import check_may_operate, is_part, only_server, user_of

FIELDS = ("server", "source", "model", "revision", "target", "only", "leave_out", "at_once")


def _servers() -> Any:
    rows = Server.objects.present().order_by("simulated", "name")
    return rows.only("name", "simulated", "rack", "family")


def _server(name: str) -> Server:
    """Raises NotFound."""
    found = Server.objects.filter(name=name.strip()[:63]).first()
    if found is None:
        what = _("No server is called “%(name)s”.") % {"name": name[:63]} if name else _("No server was chosen.")
        raise NotFound(what, _("Choose one from the list."), code="unknown_server")
    return found


@require_http_methods(["GET", "POST"])
def model_download(request: HttpRequest) -> HttpResponse:
    """The form; POST looks at what would be fetched. It changes nothing on the server yet."""
    check_may_operate(request)
    given = request.POST if request.method == "POST" else request.GET
    refusal: ConsoleError | None = None
    if request.method == "POST":
        try:
            job = model_downloads.look(_server(given.get("server", "")), _params(given), by=user_of(request))
            return redirect("deployments:model-look", pk=job.pk)
        except ConsoleError as error:
            refusal = error
    context = {
        "given": _given(given),
        "sources": [(name, SOURCE_WORDS[name]()) for name in SOURCES],
        "uploads": [one for one in model_uploads.present() if one.is_whole],
        "from_where": model_sources.as_json(),
        "servers": _servers(),
        "refusal": refusal,
    }
    return render(request, "deployments/model_download.html", context, status=refusal.status if refusal else 200)


def _given(given: QueryDict) -> dict[str, Any]:
    """What the form is filled in with; `flags` are the names that were there."""
    server = given["server"] if "server" in given else only_server()
    return {name: given.get(name, "") for name in FIELDS} | {"server": server, "flags": set(given)}


SOURCE_WORDS = {
    "huggingface": lambda: _("Hugging Face or a mirror of it"),
    "modelscope": lambda: _("ModelScope"),
    "web": lambda: _("A folder on a web server"),
    "path": lambda: _("A path that the server sees"),
    "upload": lambda: _("An upload to this console"),
}


def _params(given: QueryDict) -> dict[str, Any]:
    """As the kind takes them. Raises Invalid."""
    at_once = given.get("at_once", "").strip() or "4"
    if not at_once.isdecimal() or len(at_once) > 3:
        raise Invalid(_("“%(text)s” is not a whole number.") % {"text": at_once[:40]}, _("Mend it, then try again."))
    made: dict[str, Any] = {name: given.get(name, "").strip() for name in ("source", "model", "revision", "target")}
    for name in ("only", "leave_out"):
        made[name] = given.get(name, "").split()
    return {**made, "pickles": "pickles" in given, "in_place": "in_place" in given, "at_once": int(at_once)}


@require_http_methods(["GET", "POST"])
def model_look(request: HttpRequest, pk: int) -> HttpResponse:
    """What a look has found, live until it has ended; POST queues the download."""
    seen = model_downloads.find_look(pk)
    refusal: ConsoleError | None = None
    if request.method == "POST":
        check_may_operate(request)
        try:
            job = model_downloads.download(seen, by=user_of(request), ticket=request.POST.get("ticket", "").strip())
            return redirect("deployments:job-detail", pk=job.pk)
        except ConsoleError as error:
            refusal = error
    again = QueryDict(mutable=True)
    for name, value in seen.job.params.items():
        if name in (*FIELDS, "pickles", "in_place") and value not in ("", False, []):
            again[name] = " ".join(value) if isinstance(value, list) else str(value)
    again["server"] = seen.job.server.name
    context = {
        "look": seen,
        "server": seen.job.server,
        "refusal": refusal,
        "again": again.urlencode(),
        "in_use": in_use.of(seen.job.server),
        "title": kinds.title("download"),
    }
    if wants_json(request) and refusal is None:
        return JsonResponse({"html": render_to_string("deployments/_model_look_live.html", context, request)})
    template = "deployments/_model_look_live.html" if is_part(request) else "deployments/model_look.html"
    return render(request, template, context, status=refusal.status if refusal else 200)


@require_http_methods(["GET", "POST"])
def model_copy(request: HttpRequest) -> HttpResponse:
    """The form of a copy from server to server; POST queues both its jobs."""
    check_may_operate(request)
    given = request.POST if request.method == "POST" else request.GET
    refusal: ConsoleError | None = None
    if request.method == "POST":
        try:
            ticket = given.get("ticket", "").strip()
            _serving, copying = model_copies.copy(_wish(given), by=user_of(request), ticket=ticket)
            return redirect("deployments:job-detail", pk=copying.pk)
        except ConsoleError as error:
            refusal = error
    names = ("from", "path", "server", "target", "address", "port", "ticket")
    filled = {name.replace("from", "source"): given.get(name, "") for name in names}
    if "artifact" in given:  # from the page of a model: `server` is where it lies
        filled |= {"source": filled["server"], "server": ""}
    context = {
        "given": filled,
        "servers": _servers(),
        "refusal": refusal,
    }
    return render(request, "deployments/model_copy.html", context, status=refusal.status if refusal else 200)


def _wish(given: QueryDict) -> model_copies.Wish:
    """Raises ConsoleError."""
    port = given.get("port", "").strip() or "0"
    if not port.isdecimal() or int(port[:6]) > 65535:
        raise Invalid(_("“%(text)s” is no port.") % {"text": port[:20]}, _("Give a number up to 65535, or none."))
    return model_copies.Wish(
        _server(given.get("from", "")), given.get("path", "").strip(), _server(given.get("server", "")),
        given.get("target", ""), given.get("address", ""), int(port),
    )  # fmt: skip


# ---------- uploads ----------


@require_GET
def model_upload(request: HttpRequest) -> HttpResponse:
    """Uploads with how far each is, and the form that begins or goes on with one."""
    check_may_operate(request)
    uploads = model_uploads.present()
    context = {"uploads": uploads, "texts": texts_for_scripts(UPLOAD), "taken": sum(one.size for one in uploads)}
    return render(request, "deployments/model_upload.html", context)


@require_POST
def upload_begin(request: HttpRequest) -> HttpResponse:
    """{"name", "pickles", "files": [[name, size]]} → the upload as REST shows it."""
    check_may_operate(request)
    try:
        told = json.loads(request.body)
        files = [(str(name), int(size)) for name, size in told["files"][: model_uploads.MOST_FILES + 1]]
        name, pickles = str(told["name"]), told.get("pickles") is True
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise Invalid(_("The request could not be understood."), _("Reload the page, then try again.")) from None
    return JsonResponse(model_uploads.as_json(model_uploads.begin(name, files, by=user_of(request), pickles=pickles)))


@require_POST
def upload_piece(request: HttpRequest, upload: str, n: int, begin: int) -> HttpResponse:
    """The next bytes of a file, as the body; how far it is then."""
    check_may_operate(request)
    data = request.read(model_uploads.PIECE + 1)
    found = model_uploads.put(model_uploads.find(upload), n, begin, data, by=user_of(request))
    one = found.files[n]
    return JsonResponse({"here": one.here, "sha256": one.sha256 or None, "whole": found.is_whole})


@require_POST
def upload_delete(request: HttpRequest, upload: str) -> HttpResponse:
    check_may_operate(request)
    model_uploads.delete(model_uploads.find(upload), by=user_of(request))
    return redirect("deployments:model-upload")
