"""A call with an Idempotency-Key is carried out once; the same call again gets the first answer."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.utils.translation import gettext as _

from console.errors import Conflict, Invalid
from console.models import KeptAnswer

Answer = tuple[int, dict[str, Any]]


def answer_once(request: HttpRequest, make: Callable[[], Answer]) -> Answer:
    """(status, body) of `make()`, or of the first call with this key by this user.

    Key, change and answer are one transaction: a second call at the same moment waits for the first,
    and a crash leaves neither. An error keeps nothing, so the mended call may use the key again.
    """
    key = request.headers.get("Idempotency-Key", "")
    if not key:
        return make()
    if len(key) > 200:
        raise Invalid(_("The Idempotency-Key is longer than 200 characters."), _("Send a shorter one."))
    digest = hashlib.sha256(b"\n".join([str(request.method).encode(), request.path.encode(), request.body])).hexdigest()
    try:
        with transaction.atomic():
            kept = KeptAnswer.objects.create(user=request.user, key=key, request_digest=digest)  # type: ignore[misc]
            status, body = make()
            kept.status, kept.body = status, json.loads(json.dumps(body, default=str))
            kept.save(update_fields=["status", "body"])
        return status, kept.body
    except IntegrityError:
        first = KeptAnswer.objects.filter(user=request.user, key=key).first()  # type: ignore[misc]
        if first is None:
            raise  # some other constraint
    if first.request_digest != digest:
        raise Conflict(
            _("This Idempotency-Key was used for another call."),
            _("Send a new key with a new call."),
            code="key_reused",
        )
    return first.status, first.body
