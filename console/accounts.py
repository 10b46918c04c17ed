"""Sign-in and sign-out; the lock-out after failures is axes'."""

from django.contrib.auth import views
from django.contrib.auth.decorators import login_not_required
from django.utils.decorators import method_decorator


@method_decorator(login_not_required, name="dispatch")
class SignIn(views.LoginView):
    template_name = "console/login.html"
    redirect_authenticated_user = True


class SignOut(views.LogoutView):
    next_page = "console:login"
