"""Ask that the log of an engine which ended badly be read: on the console's own queue, after the commit.

An engine, or a server that pretends to have one, may end badly without end: of each replica one question waits, the
newest.
"""

import contextlib
import json

import django_rq
import redis
from django.db import transaction

from console import streams
from console.redis import client

RUN = "deployments.services.remedying.run_asked"
ASKED_S, KEPT_S = 60, 600  # should the worker die with it, the next one that ends badly asks again


def ask(log_pk: str, *, died: bool) -> None:
    """Have a piece read soon. Without Redis nobody reads it: the log itself is there."""
    transaction.on_commit(lambda: enqueue(log_pk, died))


def enqueue(log_pk: str, died: bool) -> None:
    replica = log_pk.partition("-")[0]
    with contextlib.suppress(redis.RedisError):
        client().set(streams.remedy_newest(replica), json.dumps([log_pk, died]), ex=KEPT_S)
        if client().set(streams.remedy_asked(replica), 1, nx=True, ex=ASKED_S):
            queue = django_rq.get_queue("default")
            queue.enqueue(RUN, replica, job_timeout=120, result_ttl=60, failure_ttl=86400)


def take(replica: str) -> tuple[str, bool] | None:
    """(piece, died) that is asked for last of a replica; who asks from here on asks anew."""
    client().delete(streams.remedy_asked(replica))
    found = client().getdel(streams.remedy_newest(replica))
    if found is None:
        return None
    log_pk, died = json.loads(found)
    return str(log_pk), bool(died)
