"""What people say of a diagnosis, and which ones there were."""

from datetime import timedelta

from django.contrib import messages
from django.db.models import Count, Max
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from deployments.views.lookup import user_of
from monitoring import diagnoses
from monitoring.models import Diagnosis
from monitoring.services import diagnosed_places, diagnosing

DAYS = (1, 7, 30, 90)
SHOWN = 50


@require_POST
def diagnosis_judge(request: HttpRequest, pk: int) -> HttpResponse:
    diagnosis = get_object_or_404(diagnosing.rows(), pk=pk)
    right = request.POST.get("right") == "1"
    diagnosing.judge(diagnosis, right, request.POST.get("note", ""), by=user_of(request))
    messages.success(request, _("Thank you. What you said is kept with the log."))
    return redirect(diagnosed_places.address(diagnosis))


@require_GET
def diagnosis_list(request: HttpRequest) -> HttpResponse:
    """The most frequent ones of some days: how often, when last, on which servers, and whether they were right."""
    wanted = request.GET.get("days", "")
    days = int(wanted) if wanted in map(str, DAYS) else 7
    lately = Diagnosis.objects.filter(made_at__gt=timezone.now() - timedelta(days=days))
    rows = lately.values("found").annotate(n=Count("pk"), last=Max("made_at")).order_by("-n", "found")[:SHOWN]
    rules = {rule.id: rule for rule in diagnoses.bundled()}
    places = lately.values("found", "attempt__job__server__name").annotate(n=Count("pk")).order_by("-n")
    judged = {(one["found"], one["right"]): one["n"] for one in lately.values("found", "right").annotate(n=Count("pk"))}
    by_rule: dict[str, list[tuple[str, int]]] = {}
    for one in places:
        by_rule.setdefault(one["found"], []).append((one["attempt__job__server__name"], one["n"]))
    found = [
        {
            **row,
            "rule": rules.get(row["found"]),
            "servers": by_rule.get(row["found"], [])[:5],
            "right": judged.get((row["found"], True), 0),
            "wrong": judged.get((row["found"], False), 0),
        }
        for row in rows
    ]
    most = max((one["n"] for one in found), default=1)
    return render(
        request, "monitoring/diagnosis_list.html", {"rows": found, "days": days, "choices": DAYS, "most": most}
    )
