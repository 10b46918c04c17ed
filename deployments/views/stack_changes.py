"""What the pages of stacks change: which stack servers are to have."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from console.errors import ConsoleError
from deployments.services import stacks
from deployments.views.lookup import user_of


@require_POST
def stack_wish(request: HttpRequest) -> HttpResponse:
    """`server` (several) are to have `stack`; '' takes their wish away."""
    names = [name[:63] for name in request.POST.getlist("server")]
    stack = request.POST.get("stack", "").strip()[:63]
    try:
        changed = stacks.wish(names, stack, by=user_of(request))
    except ConsoleError as error:
        messages.error(request, f"{error.what} {error.do}")
    else:
        n = len(changed)
        if stack:
            said = ngettext("%(n)s server is to have %(stack)s.", "%(n)s servers are to have %(stack)s.", n)
        else:
            said = ngettext("The wish of %(n)s server is gone.", "The wish of %(n)s servers is gone.", n)
        messages.success(request, said % {"n": n, "stack": stack} if n else _("Nothing to change: it is so already."))
    after = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(after, allowed_hosts=None):
        return redirect("monitoring:stack-list")
    return redirect(after)
