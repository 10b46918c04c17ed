"""Headers and errors that hold for every page."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render

from console.errors import ConsoleError

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


def wants_json(request: HttpRequest) -> bool:
    return request.path.startswith(("/api/", "/metrics")) or request.headers.get("Accept", "").startswith("application/json")


class SignedInUnlessApi(LoginRequiredMiddleware):
    """Every page asks who you are; the API asks for its token itself, its docs for a signed-in user."""

    def process_view(
        self, request: HttpRequest, view_func: Callable[..., HttpResponseBase], view_args: tuple[Any, ...], view_kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        if request.path.startswith("/api/v1/"):
            return None
        return super().process_view(request, view_func, view_args, view_kwargs)


class ErrorsInWords:
    """A ConsoleError that a page raises becomes its two sentences, as a page or as JSON."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, ConsoleError):
            return None
        if wants_json(request):
            return JsonResponse(exception.as_json(), status=exception.status)
        template = "console/_error.html" if getattr(request, "htmx", False) else "console/error.html"
        return render(request, template, {"error": exception}, status=exception.status)
