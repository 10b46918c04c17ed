"""The page of what logs take on disk, and what of them goes next."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from deployments.services import storage_page


@require_GET
def storage(request: HttpRequest) -> HttpResponse:
    context = {"found": storage_page.storage(), "days": storage_page.days(), "soon_days": storage_page.SOON_DAYS}
    return render(request, "deployments/storage.html", context)
