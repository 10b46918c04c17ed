"""The page of the site's own rules: write them, try them on past logs, save what was tried."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods

from console.errors import ConsoleError
from deployments.views.lookup import check_may_operate, user_of
from monitoring.services import rule_trial, site_rules


@require_http_methods(["GET", "POST"])
def site_rules_page(request: HttpRequest) -> HttpResponse:
    """GET shows what stands in the file. POST with act=try tries `text`, with act=save saves what was tried."""
    now = site_rules.site()
    context: dict[str, Any] = {
        "site": now, "text": now.text or site_rules.EXAMPLE, "is_example": not now.text, "over": now.digest,
        "may_save": user_of(request).may("administrator"), "most": rule_trial.SHOWN,
    }  # fmt: skip
    if request.method == "POST":
        check_may_operate(request)
        text = request.POST.get("text", "").replace("\r\n", "\n")
        context |= {"text": text, "is_example": False, "over": request.POST.get("over", "")}
        try:
            if request.POST.get("act") == "save" and request.POST.get("tried") == site_rules.digest(text):
                return _saved(request, text)
            found = site_rules.check(text)
            context |= {"trial": rule_trial.on_past_logs(found), "tried": site_rules.digest(text), "found": found}
        except ConsoleError as refusal:
            context["refusal"] = refusal
    status = 422 if "refusal" in context else 200
    return render(request, "monitoring/site_rules.html", context, status=status)


def _saved(request: HttpRequest, text: str) -> HttpResponse:
    found = site_rules.save(text, by=user_of(request), over=request.POST.get("over", ""))
    n = len(found.rules)
    messages.success(
        request, ngettext("%(n)s rule of the site is held against logs from now on.",
                          "%(n)s rules of the site are held against logs from now on.", n) % {"n": n}
    )  # fmt: skip
    return redirect("monitoring:site-rules")
