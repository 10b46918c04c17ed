"""What a job would cut off on a server: jobs under way there, and processes on its NPUs as last read."""

import json
from dataclasses import dataclass
from typing import Any

import redis

from console import streams
from console.redis import client
from deployments.models import Job, Server
from deployments.models.job import UNDER_WAY

SHOWN = 20


@dataclass(frozen=True)
class InUse:
    """`processes` hold `pid`, `user`, `name`, `npu` and `chip` where known; None where no reading is at hand."""

    jobs: list[Job]
    processes: list[dict[str, Any]] | None
    more: int  # processes that are not listed


def of(server: Server) -> InUse:
    jobs = list(server.jobs.filter(state__in=UNDER_WAY, waiting=False).select_related("requester")[:SHOWN])
    found = processes(server)
    return InUse(jobs, None if found is None else found[:SHOWN], max(0, len(found or []) - SHOWN))


def processes(server: Server) -> list[dict[str, Any]] | None:
    """The processes on its NPUs; None where no reading is at hand."""
    try:
        kept = client().hget(streams.FLEET_NOW, str(server.pk))
    except redis.RedisError:
        return None
    now = json.loads(kept) if kept else {}
    if server.is_silent or not kept or now.get("error"):
        return None
    return [process for process in now.get("processes") or [] if isinstance(process, dict)]
