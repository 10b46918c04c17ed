"""The banner of every page that says the console doubts itself, and the button that ends it."""

from typing import cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console import doubt
from console.errors import ConsoleError
from console.models import User


@require_GET
def banner(request: HttpRequest) -> HttpResponse:
    """What stands in the banner now; nothing where nothing is doubted."""
    return render(request, "console/_doubt.html")


@require_POST
def end(request: HttpRequest) -> HttpResponse:
    """An administrator knows that the silent servers are really down."""
    try:
        doubt.end_by_hand(by=cast(User, request.user))  # LoginRequiredMiddleware lets nobody else in
        messages.success(request, _("The doubt ends in a moment; automatic actions go on."))
    except ConsoleError as error:
        messages.error(request, f"{error.what} {error.do}")
    back = request.META.get("HTTP_REFERER", "")
    allowed = url_has_allowed_host_and_scheme(back, {request.get_host()}, require_https=request.is_secure())
    return redirect(back if allowed else "/")
