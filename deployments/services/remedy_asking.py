"""Ask that the log of an engine which ended badly be read: on the console's own queue, after the commit."""

import contextlib

import django_rq
import redis
from django.db import transaction

RUN = "deployments.services.remedying.run"


def ask(log_pk: str, *, died: bool) -> None:
    """Have a piece read soon. Without Redis nobody reads it: the log itself is there."""
    transaction.on_commit(lambda: enqueue(log_pk, died))


def enqueue(log_pk: str, died: bool) -> None:
    with contextlib.suppress(redis.RedisError):
        queue = django_rq.get_queue("default")
        queue.enqueue(RUN, log_pk, died, job_timeout=120, result_ttl=60, failure_ttl=86400)
