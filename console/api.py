"""The REST API: one NinjaAPI with bearer tokens, to which each app adds its router.

Every error is `{"error": {"code", "what", "do"}}`.
"""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.security import HttpBearer

from console import tokens
from console.answers import Answer
from console.errors import ConsoleError, Invalid, NotFound
from console.models import User
from deployments.api import router as deployments_router
from monitoring.api import router as monitoring_router
from monitoring.rules_api import router as rules_router


class Bearer(HttpBearer):
    """`Authorization: Bearer ac_…`; sets `request.user`."""

    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        user = tokens.holder(token)
        if user is not None:
            request.user = user
        return user


api = NinjaAPI(
    title="Ascend Console",
    version="1",
    urls_namespace="api",
    auth=Bearer(),
    docs_url="/docs",
    docs_decorator=login_required,
)


@api.exception_handler(ConsoleError)
def console_error(request: HttpRequest, error: ConsoleError) -> HttpResponse:
    return Answer(error.as_json(), status=error.status)


@api.exception_handler(AuthenticationError)
def not_signed_in(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    refused = ConsoleError(
        _("The call carries no valid token."),
        _("Send “Authorization: Bearer TOKEN”; an administrator makes one: manage.py token create USER --role ROLE."),
        code="not_signed_in",
        status=401,
    )
    return console_error(request, refused)


@api.exception_handler(ValidationError)
def wrong_shape(request: HttpRequest, error: ValidationError) -> HttpResponse:
    problems = "; ".join(_problem(item) for item in error.errors[:8])
    refused = Invalid(
        _("The call does not fit: %(problems)s.") % {"problems": problems},
        _("Mend it and send it again; /api/v1/docs shows its shape."),
    )
    return console_error(request, refused)


def _problem(item: dict[str, Any]) -> str:
    loc = item.get("loc", ())
    place = ".".join(map(str, loc[2:] or loc[1:]))[:120]  # without "body" and the name of our own argument
    return f"{place}: {item.get('msg', '')}"[:300]


@api.exception_handler(HttpError)
def http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    refused = ConsoleError(
        _("The call could not be read: %(reason)s.") % {"reason": str(error)[:200]},
        _("Send a JSON object as UTF-8 with “Content-Type: application/json”."),
        code="unreadable",
        status=error.status_code,
    )
    return console_error(request, refused)


@api.exception_handler(Http404)
def not_found(request: HttpRequest, error: Http404) -> HttpResponse:
    return console_error(
        request, NotFound(_("There is nothing at this address."), _("Look at /api/v1/docs for what there is."))
    )


api.add_router("", deployments_router)
api.add_router("", monitoring_router)
api.add_router("", rules_router)
