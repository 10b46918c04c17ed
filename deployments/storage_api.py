"""REST: what logs take on disk, and what of them goes next."""

from django.http import HttpRequest, HttpResponse
from ninja import Router

from console.answers import Answer
from deployments.services import storage_page

router = Router(tags=["logs"])


@router.get("/storage", summary="What logs take by kind, what goes next, and the database's size")
def show(request: HttpRequest) -> HttpResponse:
    return Answer(storage_page.as_json(storage_page.storage()))
