"""What people say of a diagnosis, and which ones there were."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console import spreadsheet
from deployments.views.lookup import user_of
from monitoring.services import diagnosed_places, diagnosing, diagnosis_list, diagnosis_plot


@require_POST
def diagnosis_judge(request: HttpRequest, pk: int) -> HttpResponse:
    diagnosis = get_object_or_404(diagnosing.rows(), pk=pk)
    right = request.POST.get("right") == "1"
    diagnosing.judge(diagnosis, right, request.POST.get("note", ""), by=user_of(request))
    messages.success(request, _("Thank you. What you said is kept with the log."))
    return redirect(diagnosed_places.address(diagnosis))


@require_GET
def diagnosis_list_page(request: HttpRequest) -> HttpResponse:
    """The most frequent ones of some days, over time and by place, and the newest cases."""
    filters = diagnosis_list.read(request.GET)
    found = diagnosis_list.look(filters)
    context = {
        "found": found,
        "filters": filters,
        "days": [(n, filters.address(days=n), n == filters.days) for n in diagnosis_list.DAYS],
        "chosen": [(name, value, filters.address(**{name: ""})) for name, value in filters.chosen],
        "plot": diagnosis_plot.drawn(found.days, found.series),
        "series": [(f"part-{n}", name) for n, name in enumerate(found.series, 1)],
        "rows": [(row, filters.address(found=row.found or diagnosis_list.UNKNOWN)) for row in found.rows],
        "by_place": [
            (name, [(value, n, filters.address(**{name: value})) for value, n in values])
            for name, values in found.places.items()
        ],
        "most": max((row.n for row in found.rows), default=1),
        "csv": filters.address(),
    }
    return render(request, "monitoring/diagnosis_list.html", context)


@require_GET
def diagnosis_csv(request: HttpRequest) -> StreamingHttpResponse:
    """Every one that matches, as CSV."""
    rows = diagnosis_list.csv_rows(diagnosis_list.read(request.GET))
    return spreadsheet.answer("diagnoses.csv", diagnosis_list.CSV_HEAD, rows)
