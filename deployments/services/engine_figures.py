"""What engines tell of their load, of one replica and added up. Unknown is None, never 0, and what is old says so.

The numbers stand in Redis (services/replica_live.py); those that are no longer fresh are shown grey, with their age.
"""

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis
from django.utils import timezone

from console import streams
from console.redis import client
from deployments.models import SERVING, Replica, ReplicaState
from deployments.services.replica_live import FRESH_S

ANSWERING = (*SERVING, ReplicaState.DRAINING)
Now = Mapping[int, Mapping[str, Any]]  # {replica: {"seen", "metrics"}}


@dataclass(frozen=True)
class Figures:
    """Of one engine, or of several: requests and tokens are added up, of cache and latencies the worst counts."""

    running: float | None = None
    waiting: float | None = None
    kv_pct: float | None = None
    tokens_s: float | None = None  # generated
    prompt_tokens_s: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    overdue_since: datetime | None = None  # when it was last heard, where that is too long ago

    @property
    def known(self) -> bool:
        return any(getattr(self, name) is not None for name in NAMES)


NAMES = {
    "running": "running", "waiting": "waiting", "kv_pct": "kv_pct", "tokens_s": "generation_tokens_s",
    "prompt_tokens_s": "prompt_tokens_s", "ttft_ms": "ttft_ms", "tpot_ms": "tpot_ms",
}  # fmt: skip
WORST = ("kv_pct", "ttft_ms", "tpot_ms")


def read(replicas: Iterable[Replica]) -> Now:
    """What those that answer said last, however long ago; {} without Redis. One call."""
    names = [str(one.pk) for one in replicas if one.state in ANSWERING]
    if not names:
        return {}
    with contextlib.suppress(redis.RedisError):
        kept = client().hmget(streams.REPLICAS_NOW, names)
        return {int(name): json.loads(value) for name, value in zip(names, kept, strict=True) if value}
    return {}


def of(replica: Replica, now: Now) -> Figures:
    """Of an engine that answers; all None for one that does not."""
    said = now.get(replica.pk)
    if said is None or replica.state not in ANSWERING:
        return Figures()
    told = said.get("metrics") or {}
    seen = datetime.fromtimestamp(said["seen"], tz=timezone.get_current_timezone())
    late = seen if (timezone.now() - seen).total_seconds() > FRESH_S else None
    return Figures(**{ours: told.get(theirs) for ours, theirs in NAMES.items()}, overdue_since=late)


def whole(replicas: Sequence[Replica], now: Now) -> Figures:
    """Of all that answer; where some are overdue, since when the first of them is."""
    every = [figures for one in replicas if (figures := of(one, now)).known]
    values: dict[str, float | None] = {}
    for name in NAMES:
        known = [value for one in every if (value := getattr(one, name)) is not None]
        values[name] = (max(known) if name in WORST else sum(known)) if known else None
    late = [one.overdue_since for one in every if one.overdue_since]
    return Figures(**values, overdue_since=min(late, default=None))
