"""What engines tell of their load (agent/engines/now.py): of one replica, and added up. Unknown is None, never 0."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from deployments.models import Replica
from deployments.models.deployment import SERVING

DUE_S = 30  # a keeper is heard every few seconds; what is older than that is greyed, with its age


@dataclass(frozen=True)
class Figures:
    """Of one engine, or of several: requests and tokens are added up, the cache and latencies are the worst."""

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
        return self.running is not None or self.tokens_s is not None


NAMES = {
    "running": "running", "waiting": "waiting", "kv_pct": "kv_pct", "tokens_s": "generation_tokens_s",
    "prompt_tokens_s": "prompt_tokens_s", "ttft_ms": "ttft_ms", "tpot_ms": "tpot_ms",
}  # fmt: skip
WORST = ("kv_pct", "ttft_ms", "tpot_ms")


def of(replica: Replica, at: datetime | None = None) -> Figures:
    """Of an engine that serves; all None for one that does not."""
    if replica.state not in (*SERVING, "draining"):
        return Figures()
    told = replica.engine.get("metrics") if isinstance(replica.engine, Mapping) else None
    told = told if isinstance(told, Mapping) else {}
    values = {ours: _number(told.get(theirs)) for ours, theirs in NAMES.items()}
    heard, at = replica.heard_at, at or timezone.now()
    late = heard if heard and (at - heard).total_seconds() > DUE_S else None
    return Figures(**values, overdue_since=late)


def _number(value: Any) -> float | None:
    """It came from a server."""
    return float(value) if type(value) in (int, float) and 0 <= value < 1e15 else None


def whole(replicas: Iterable[Replica]) -> Figures:
    """Of all that serve; the oldest of those that are overdue says since when."""
    every = [figures for one in replicas if (figures := of(one)).known]
    values: dict[str, float | None] = {}
    for name in NAMES:
        known = [value for one in every if (value := getattr(one, name)) is not None]
        values[name] = (max(known) if name in WORST else sum(known)) if known else None
    late = [one.overdue_since for one in every if one.overdue_since]
    return Figures(**values, overdue_since=min(late, default=None))
