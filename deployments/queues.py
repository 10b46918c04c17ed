"""Sign a job and hand it to RQ, on the server's own queue below the server's own prefix."""

import json
import secrets
import time
from functools import lru_cache
from typing import Any

from django.conf import settings
from rq.job import Job as RqJob
from rq.queue import Queue as RqQueue
from rq.serializers import JSONSerializer

from console import streams
from console.redis import client
from deployments.agent import keys, signing
from deployments.models import Attempt, Server

LEAVE_VALID_S = 60


@lru_cache(maxsize=4096)
def _classes(server_id: int) -> tuple[type[RqQueue], type[RqJob]]:
    """RQ's classes with the keys of one server; the agent has the same by RQ_KEY_PREFIX."""
    prefix = streams.rq_prefix(server_id)
    job = type("ServerJob", (RqJob,), {"redis_job_namespace_prefix": f"{prefix}:job:"})
    queue = type(
        "ServerQueue",
        (RqQueue,),
        {
            "redis_queue_namespace_prefix": f"{prefix}:queue:",
            "redis_queues_keys": f"{prefix}:queues",
            "job_class": job,
        },
    )
    return queue, job


def queue(server_id: int) -> RqQueue:
    made, job = _classes(server_id)
    return made(keys.QUEUE, connection=client(), serializer=JSONSerializer, job_class=job)


def push(attempt: Attempt) -> None:
    """Hand `attempt` to its server. Raises redis.RedisError; the caller's row says that it is still to be pushed."""
    job = attempt.job
    body = {
        "op": "run",
        "attempt": attempt.pk,
        "job": job.pk,
        "kind": job.kind,
        "params": job.params,
        "server": job.server_id,
        "not_after": int(job.not_after.timestamp()),
    }
    if attempt.protocol > 1:  # payloads of protocol 1 had no number
        body["protocol"] = attempt.protocol
    _enqueue(job.server, attempt.pk, body, ttl_s=max(60, int(job.not_after.timestamp() - time.time())))


def push_cancel(attempt: Attempt) -> None:
    """Ask the attempt's server to cancel it. Raises redis.RedisError."""
    nonce = secrets.token_hex(4)
    body = {
        "op": "cancel",
        "attempt": attempt.pk,
        "server": attempt.job.server_id,
        "not_after": int(time.time()) + settings.JOB_VALID_S,
        "nonce": nonce,
    }
    _enqueue(attempt.job.server, _cancel_id(attempt), body, ttl_s=settings.JOB_VALID_S)


def push_leave(server: Server) -> None:
    """Ask the server's agent to remove itself. Raises redis.RedisError."""
    nonce = secrets.token_hex(4)
    body = {"op": "leave", "server": server.pk, "not_after": int(time.time()) + LEAVE_VALID_S, "nonce": nonce}
    _enqueue(server, f"leave-{nonce}", body, ttl_s=LEAVE_VALID_S)


def _cancel_id(attempt: Attempt) -> str:
    return f"c-{attempt.pk}"


def _enqueue(server: Server, rq_id: str, body: dict[str, Any], *, ttl_s: int) -> None:
    # The same attempt always makes the same bytes: a server answers a repeated dispatch "already".
    text = json.dumps(body, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    queue(server.pk).enqueue_call(
        keys.ENTRY,
        args=(text, signing.sign(server.key, text)),
        job_id=rq_id,
        result_ttl=3600,
        failure_ttl=3600,
        ttl=ttl_s,
        timeout=60,
        description=f"{body['op']} {body.get('attempt', '')}",
    )


def is_waiting(attempt: Attempt) -> bool:
    """True while the dispatch stands in the server's queue or in its worker's hand."""
    return _stands(attempt, attempt.pk)


def cancel_is_waiting(attempt: Attempt) -> bool:
    """The same of its cancel."""
    return _stands(attempt, _cancel_id(attempt))


def _stands(attempt: Attempt, rq_id: str) -> bool:
    """Asked of Redis by name: the lists are the server's own, and may be as long and as odd as it likes."""
    waiting = queue(attempt.job.server_id)
    return any(client().lpos(key, rq_id) is not None for key in (waiting.key, waiting.intermediate_queue_key))


def withdraw(attempt: Attempt) -> bool:
    """Take the dispatch back out of the queue. True when it was still there, so the server never saw it."""
    waiting = queue(attempt.job.server_id)
    return bool(client().lrem(waiting.key, 0, attempt.pk))
