"""What the frame of every page needs."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest


def frame(request: HttpRequest) -> dict[str, Any]:
    user = getattr(request, "user", None)
    known = user is not None and user.is_authenticated
    return {
        "console_version": settings.VERSION,
        "theme": request.COOKIES.get("theme", ""),
        "may_operate": known and user.may("operator"),
        "may_administer": known and user.may("administrator"),
    }
