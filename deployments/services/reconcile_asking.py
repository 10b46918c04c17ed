"""Ask that a deployment be looked at: on the console's own queue, after the commit, and once however many ask."""

import contextlib

import django_rq
import redis
from django.db import transaction

from console import streams
from console.redis import client

LOOK = "deployments.services.reconcile.run"
ASKED_S = 60  # should the worker die with it, somebody asks again


def ask(deployment_pk: int) -> None:
    """Have it looked at soon. Without Redis nobody is asked now: the sweep does it later."""
    transaction.on_commit(lambda: enqueue(deployment_pk))


def enqueue(deployment_pk: int) -> bool:
    """Put it into the queue; False where it stands there already, or Redis is away."""
    with contextlib.suppress(redis.RedisError):
        if client().set(streams.reconcile_asked(deployment_pk), 1, nx=True, ex=ASKED_S):
            queue = django_rq.get_queue("default")
            queue.enqueue(LOOK, deployment_pk, job_timeout=120, result_ttl=60, failure_ttl=86400)
            return True
    return False
