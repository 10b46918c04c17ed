"""Bearer tokens: who holds one, and with which rights."""

import contextlib
from datetime import timedelta

from django.db import OperationalError
from django.http import HttpRequest
from django.utils import timezone

from console.models import RANK, ApiToken, Role, User

SEEN_AGAIN = timedelta(seconds=60)  # how exactly a token's last use is kept: no write with every call


def holder(text: str) -> User | None:
    """The user of a valid token, with the lower of both roles; None for any other text."""
    found = ApiToken.objects.select_related("user").filter(digest=ApiToken.digest_of(text)).first()
    now = timezone.now()
    if found is None or not found.user.is_active or (found.expires_at and found.expires_at <= now):
        return None
    if found.last_used_at is None or now - found.last_used_at > SEEN_AGAIN:
        with contextlib.suppress(OperationalError):  # a busy database refuses no call for this
            ApiToken.objects.filter(pk=found.pk).update(last_used_at=now)
    found.user.role = min(found.role, found.user.role, key=lambda role: RANK[Role(role)])
    return found.user


def caller(request: HttpRequest) -> User | None:
    """Who calls: the signed-in user of a session, or the holder of the bearer token."""
    if request.user.is_authenticated:
        return request.user
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    return holder(text.strip()) if scheme.lower() == "bearer" and text else None
