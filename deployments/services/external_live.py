"""What engines of others say of their load: numbers in Redis for pages, never rows. An agent tells them every 30 s.

`Live` is ingest's; `read` is for everybody. In Redis, for each server: {"seen": epoch of receipt, "engines": {key:
metrics}}; what is older than FRESH_S is not known now.
"""

import contextlib
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

import redis
from django.utils.translation import gettext as _

from console import streams, untrusted
from console.redis import client
from deployments.services import replica_now

FRESH_S = 90.0
MOST, MOST_KEY = 64, 120
Metrics = Mapping[str, float | int | None]


class Live:
    """Ingest's memory between two seconds."""

    def __init__(self) -> None:
        self.said: dict[int, str | None] = {}  # server: what Redis is to hold, None for nothing

    def know(self, gone: Iterable[int]) -> None:
        self.said |= dict.fromkeys(gone)

    def take(self, server: int, told: Any, received: float) -> None:
        """Take `external` of a sample; one that says nothing of it leaves what is known."""
        if isinstance(told, list):
            found = {key: metrics for item in told[:MOST] if (key := _key(item)) and (metrics := _metrics(item))}
            self.said[server] = json.dumps({"seen": received, "engines": found}) if found else None

    def each_second(self, pipeline: Any) -> None:
        for server, text in self.said.items():
            if text is None:
                pipeline.hdel(streams.EXTERNAL_NOW, str(server))
            else:
                pipeline.hset(streams.EXTERNAL_NOW, str(server), text)
        self.said.clear()


def _key(item: Any) -> str:
    key = item.get("key") if isinstance(item, dict) else None
    return untrusted.text(key, MOST_KEY) if isinstance(key, str) else ""


def _metrics(item: Mapping[str, Any]) -> Metrics | None:
    told = item.get("metrics")
    return replica_now.metrics(told) if isinstance(told, dict) else None


def read(servers: Iterable[int]) -> dict[tuple[int, str], Metrics]:
    """{(server id, key of an engine): what it said last} of those heard within FRESH_S; {} without Redis."""
    names = sorted({str(pk) for pk in servers})
    if not names:
        return {}
    with contextlib.suppress(redis.RedisError):
        kept = client().hmget(streams.EXTERNAL_NOW, names)
        said = {int(name): json.loads(value) for name, value in zip(names, kept, strict=True) if value}
        oldest = time.time() - FRESH_S
        return {
            (pk, key): metrics for pk, one in said.items() if one["seen"] >= oldest
            for key, metrics in one["engines"].items()
        }  # fmt: skip
    return {}


def words(metrics: Metrics | None) -> list[str]:
    """One short text for each figure that is known."""
    if metrics is None:
        return []
    made = (
        ("running", _("%(n)s running")), ("waiting", _("%(n)s waiting")), ("generation_tokens_s", _("%(n)s tokens/s")),
        ("kv_pct", _("KV cache %(n)s %%")), ("ttft_ms", _("TTFT %(n)s ms")),
    )  # fmt: skip
    known = ((text, metrics.get(name)) for name, text in made)
    return [text % {"n": f"{value:.0f}"} for text, value in known if value is not None]
