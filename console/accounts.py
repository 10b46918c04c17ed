"""Sign-in and sign-out; the lock-out after failures is axes'."""

from typing import Any

from axes.handlers.proxy import AxesProxyHandler
from django.conf import settings
from django.contrib.auth import views
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.language import is_chinese


@method_decorator(login_not_required, name="dispatch")
class SignIn(views.LoginView):
    template_name = "console/login.html"
    redirect_authenticated_user = True

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """The same page with what was wrong, and how many tries are left before the pause."""
        context = self.get_context_data(form=form, problem=problem(self.request, form))
        return self.render_to_response(context, status=401)


class SignOut(views.LogoutView):
    next_page = "console:login"


def problem(request: HttpRequest, form: AuthenticationForm) -> str:
    """Why nobody was signed in; never whether it was the name or the password."""
    name, password = form.data.get("username", ""), form.data.get("password", "")
    if not name or not password:
        return _("Enter both user name and password.")
    left = settings.AXES_FAILURE_LIMIT - AxesProxyHandler.get_failures(request, {"username": name})
    what = _("User name and password do not match.")
    tries = ngettext(
        "%(n)s try is left, then %(minutes)s minutes of pause.",
        "%(n)s tries are left, then %(minutes)s minutes of pause.",
        left,
    )
    gap = "" if is_chinese() else " "
    return what + gap + tries % {"n": max(0, left), "minutes": pause_minutes()}


def pause_minutes() -> int:
    return round(settings.AXES_COOLOFF_TIME * 60)


def locked_out(request: HttpRequest, response: HttpResponse | None, credentials: dict[str, Any] | None) -> HttpResponse:
    """What axes answers while a user is locked out: the sign-in page with the reason."""
    form = AuthenticationForm(request, initial={"username": (credentials or {}).get("username", "")})
    context = {"form": form, "locked": True, "minutes": pause_minutes(), "next": request.POST.get("next", "")}
    return render(request, "console/login.html", context, status=429)
