"""Headers and errors that hold for every page."""

import zlib
from collections.abc import Callable
from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _

from console.answers import Answer
from console.errors import ConsoleError, Invalid

Handler = Callable[[HttpRequest], HttpResponse]

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


def holds_null(request: HttpRequest) -> bool:
    """True for a null character in address, form or JSON: no text that we keep may hold one, PostgreSQL refuses it."""
    if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
        return True
    if request.method not in ("POST", "PUT", "PATCH"):
        return False
    if request.content_type == "application/json":
        return b"\\u0000" in request.body
    return any("\0" in value for values in request.POST.lists() for value in values[1])


class ErrorsInWords:
    """A ConsoleError that a page raises becomes its two sentences, as a page or as JSON; so does a null character."""

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
            answer = self.process_exception(request, refused)
            assert answer is not None
            return answer
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, ConsoleError):
            return None
        if wants_json(request):
            return Answer(exception.as_json(), status=exception.status)
        template = "console/_error.html" if getattr(request, "htmx", False) else "console/error.html"
        return render(request, template, {"error": exception}, status=exception.status)
