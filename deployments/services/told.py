"""What programs of jobs tell the console (artifacts/tell.py), handed to who makes rows of it.

It runs within ingest's transaction, which holds the server's row. What a handler cannot take changes nothing, is
noted in the console's log and stops nobody: the data come from a server, and are whatever it likes to send.
"""

import logging
from collections.abc import Callable
from typing import Any

from django.db import transaction

from deployments.models import Attempt

log = logging.getLogger(__name__)
Handler = Callable[[Attempt, dict[str, Any]], None]
HANDLERS: dict[str, Handler] = {}


def handles(what: str) -> Callable[[Handler], Handler]:
    """The function takes what is told under that name. Its module is imported by apps.ready."""

    def note(handler: Handler) -> Handler:
        HANDLERS[what] = handler
        return handler

    return note


def hand_over(attempt: Attempt, what: str, data: dict[str, Any]) -> None:
    handler = HANDLERS.get(what)
    if handler is None:
        return
    try:
        with transaction.atomic():
            handler(attempt, data)
    except Exception:
        log.exception("job %s told of %r, which could not be taken", attempt.job_id, what[:40])
