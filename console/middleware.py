"""Headers and errors that hold for every page."""

import json
import logging
import re
import zlib
from collections.abc import Callable
from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _

from console.answers import Answer
from console.errors import ConsoleError, Invalid, Unavailable

log = logging.getLogger(__name__)

Handler = Callable[[HttpRequest], HttpResponse]

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
FILES = ("/models/uploads/", "/api/v1/model-uploads/")  # calls below these have pieces of files as their body
PIECES = "/join/support"  # of support bundles
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'"
)


class ContentSecurityPolicy:
    """No inline script, no inline style, nothing from elsewhere."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        response.headers.setdefault("Referrer-Policy", "same-origin")
        return response


class Compress:
    """Pages and answers as gzip where the browser takes it: a phone at night has 30 kB/s.

    Level 1, since Django's own level 6 takes 20 times as long over a page full of numbers. Secrets in a page do not
    repeat (CSRF tokens are masked anew in every answer), so compression tells nothing about them.
    """

    LEAST_BYTES = 1000

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.streaming or len(response.content) < self.LEAST_BYTES or response.has_header("Content-Encoding"):
            return response
        patch_vary_headers(response, ("Accept-Encoding",))
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            packer = zlib.compressobj(1, wbits=31)
            response.content = packer.compress(response.content) + packer.flush()
            response.headers["Content-Encoding"] = "gzip"
            response.headers["Content-Length"] = str(len(response.content))
        return response


class HeadAsGet:
    """HEAD asks for what GET answers, without the body: balancers and curl -I ask so. The web server drops the body.

    Not for servers that join: what they fetch is noted as a step, and nobody has it after a HEAD.
    """

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.method != "HEAD" or request.path.startswith("/join/"):
            return self.get_response(request)
        request.method = "GET"
        response = self.get_response(request)
        request.method = "HEAD"
        if response.streaming:  # a long log is not read for nobody
            response.close()
            return HttpResponse(status=response.status_code, headers=dict(response.headers))
        return response


def wants_json(request: HttpRequest) -> bool:
    return request.path.startswith(("/api/", "/metrics")) or request.headers.get("Accept", "").startswith(
        "application/json"
    )


class SignedInUnlessApi(LoginRequiredMiddleware):
    """Every page asks who you are; the API asks for its token itself, its docs for a signed-in user."""

    def process_view(
        self,
        request: HttpRequest,
        view_func: Callable[..., HttpResponseBase],
        view_args: tuple[Any, ...],
        view_kwargs: dict[str, Any],
    ) -> HttpResponseBase | None:
        if request.path.startswith("/api/v1/"):
            return None
        return super().process_view(request, view_func, view_args, view_kwargs)


# An escape that may be half of a pair: what no encoding can write, so that neither database keeps it.
HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")


def holds_half(request: HttpRequest) -> bool:
    """True for half a character in JSON."""
    if request.method not in ("POST", "PUT", "PATCH", "DELETE") or request.content_type in FORMS:
        return False
    if request.path.startswith((*FILES, PIECES)) or not HALF.search(request.body):
        return False
    try:
        json.dumps(json.loads(request.body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        pass  # no JSON at all: who reads it says so
    return False


def holds_null(request: HttpRequest) -> bool:
    """True for a null character in address, form or JSON: no text that we keep may hold one, PostgreSQL refuses it."""
    if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
        return True
    if request.method not in ("POST", "PUT", "PATCH"):
        return False
    if request.content_type in FORMS and not request.path.startswith("/api/"):
        return any("\0" in value for values in request.POST.lists() for value in values[1])
    if request.path == PIECES and request.content_type not in FORMS:
        return False  # the same of what servers send, who name no type
    if request.path.startswith(FILES) and request.content_type == "application/octet-stream":
        return False  # bytes of a file, which their view reads itself
    return b"\\u0000" in request.body or b"\0" in request.body  # the API reads JSON whatever it is called


class ErrorsInWords:
    """A ConsoleError that a page raises becomes its two sentences, as a page or as JSON; so do a null character, half
    a character and a method that an address does not take."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if holds_null(request):
            refused = Invalid(
                _("The request holds a null character."),
                _("Take it out and send the request again."),
                code="null_character",
                status=400,
            )
            return in_words(request, refused)
        if holds_half(request):
            refused = Invalid(
                _("The request holds half a character."),
                _("Write its text as UTF-8 and send the request again."),
                code="half_character",
                status=400,
            )
            return in_words(request, refused)
        response = self.get_response(request)
        if response.status_code == 405:
            return _wrong_method(request, response)
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if isinstance(exception, OperationalError):
            log.warning("%s %s: the database does not answer: %s", request.method, request.path, exception)
            exception = database_away()
        return in_words(request, exception) if isinstance(exception, ConsoleError) else None


def database_away() -> ConsoleError:
    """What is said when the database is away, or did not get to us within its time; nothing was written then."""
    return Unavailable(
        _("The database is busy or does not answer, so nothing was changed."),
        _("Try again in a moment; /readyz tells how it is."),
    )


def in_words(request: HttpRequest, error: ConsoleError) -> HttpResponse:
    """The two sentences as JSON, as a page, or as a part of one, whichever the caller reads."""
    if wants_json(request):
        return Answer(error.as_json(), status=error.status)
    template = "console/_error.html" if getattr(request, "htmx", False) else "console/error.html"
    return render(request, template, {"error": error}, status=error.status)


def _wrong_method(request: HttpRequest, refused: HttpResponse) -> HttpResponse:
    """405 in words, with the Allow header of the bare answer where it has one."""
    error = ConsoleError(
        _("This address does not take %(method)s.") % {"method": str(request.method)[:20]},
        _("Open it from its page; /api/v1/docs shows what calls there are."),
        code="wrong_method",
        status=405,
    )
    answer = in_words(request, error)
    if allowed := refused.headers.get("Allow"):
        answer.headers["Allow"] = allowed
    return answer
