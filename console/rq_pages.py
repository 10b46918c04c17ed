"""django-rq's own pages of the console's queue, mounted for administrators only."""

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.views.generic import RedirectView
from django_rq.urls import get_admin_urlpatterns, get_api_urlpatterns

from console.errors import NotAllowed
from console.models import User


def administrators_only(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Raises NotAllowed for others. The pages themselves ask for Django's own mark of staff, which we do not use."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **named: Any) -> HttpResponse:
        user = cast(User, request.user)  # LoginRequiredMiddleware lets nobody else in
        if not user.may("administrator"):
            raise NotAllowed(_("Only an administrator may open RQ's own pages."), _("Open the page of queues."))
        user.is_staff = True  # for this request alone: it is never saved
        try:
            return view(request, *args, **named)
        except IndexError as error:  # they take their queues by number
            raise Http404 from error

    return guarded


# Its figures as JSON take tokens of its own in other sites; here they are behind the same door.
_figures = [
    URLPattern(found.pattern, administrators_only(found.callback), found.default_args, found.name)
    for found in get_api_urlpatterns()
]
rq_patterns = ([*_figures, *get_admin_urlpatterns(view_wrapper=administrators_only)], "django_rq")

# Names that those pages' templates ask for.
_queues = RedirectView.as_view(pattern_name="deployments:queue-list")
admin_patterns = ([path("", _queues, name="index"), path("login/", _queues, name="login")], "admin")
