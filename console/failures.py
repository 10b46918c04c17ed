"""The pages and answers for an address that is not there, a call that is refused, and our own mistakes."""

import sys

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from console.answers import Answer
from console.errors import ConsoleError, NotAllowed, NotFound
from console.middleware import database_away, wants_json


def answer(request: HttpRequest, error: ConsoleError) -> HttpResponse:
    """The two sentences of `error` as JSON or as a page, whichever the caller reads."""
    if wants_json(request):
        return Answer(error.as_json(), status=error.status)
    return render(request, "console/error.html", {"error": error}, status=error.status)


def too_large(most: int) -> ConsoleError:
    """`most` is in MB."""
    return ConsoleError(
        _("The request is longer than %(most)s MB.") % {"most": most}, _("Send less at once."),
        code="too_large", status=413,
    )  # fmt: skip


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if isinstance(exception, RequestDataTooBig):
        return answer(request, too_large(settings.DATA_UPLOAD_MAX_MEMORY_SIZE >> 20))
    return answer(
        request,
        ConsoleError(_("The request could not be understood."), _("Go back and try again."), code="bad_request"),
    )


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer(request, NotAllowed(_("You may not open this."), _("Ask an administrator for the right to.")))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer(
        request, NotFound(_("There is nothing at this address."), _("Look in the navigation, or search with Ctrl K."))
    )


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    return answer(
        request,
        NotAllowed(
            _("The form was open for too long, or came from another site."), _("Reload the page and send it again.")
        ),
    )


def our_mistake(request: HttpRequest) -> HttpResponse:
    """The last resort: its template reads no database and no session."""
    error = ConsoleError(
        _("The console made a mistake while it answered."),
        _("Try again; if it stays so, look at var/log/web.log."),
        code="our_mistake",
        status=500,
    )
    if isinstance(sys.exc_info()[1], OperationalError):  # while it looked up who asks: no view was reached
        error = database_away()
    if wants_json(request):
        return Answer(error.as_json(), status=error.status)
    return render(None, "500.html", {"what": error.what, "do": error.do}, status=error.status)
