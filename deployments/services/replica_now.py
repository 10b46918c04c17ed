"""What the keeper of an engine says of it (agent/engines/now.py), cleaned: it comes from a server and is untrusted."""

from collections.abc import Mapping
from typing import Any

from console import untrusted

STATES = ("starting", "loading", "ready", "degraded", "failed", "stopped")
METRICS = (
    "running", "waiting", "kv_pct", "prompt_tokens_s", "generation_tokens_s", "ttft_ms", "tpot_ms", "requests_total",
    "errors_total",
)  # fmt: skip
FACTS = ("version", "kv_tokens", "max_concurrency", "weights_gb", "available_kv_gib", "max_model_len")
MOST_COUNT = 10**9
MOST_TEXT = 300


def clean(said: Any) -> dict[str, Any] | None:
    """{replica, state, pid, started_at, ready_at, restarts, progress, reason, at, metrics, facts} with nothing else in
    it, None for what is not known; None where it is no such thing at all."""
    if not isinstance(said, dict) or said.get("state") not in STATES:
        return None
    replica = untrusted.whole(said.get("replica"), 2**62)
    if not replica:
        return None
    return {
        "replica": replica,
        "state": said["state"],
        "pid": untrusted.whole(said.get("pid"), MOST_COUNT),
        "started_at": untrusted.amount(said.get("started_at")),
        "ready_at": untrusted.amount(said.get("ready_at")),
        "restarts": untrusted.whole(said.get("restarts"), MOST_COUNT),
        "progress": progress(said.get("progress")),
        "reason": pair(said.get("reason")),
        "at": untrusted.amount(said.get("at")),
        "metrics": metrics(said.get("metrics")),
        "facts": facts(said.get("facts")),
    }


def progress(value: Any) -> dict[str, Any] | None:
    """{"what": [zh, en], "done", "of"}, or None."""
    what = pair(value.get("what")) if isinstance(value, dict) else None
    if what is None:
        return None
    return {"what": what, "done": untrusted.amount(value.get("done")), "of": untrusted.amount(value.get("of"))}


def pair(value: Any) -> list[str] | None:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(item, str) for item in value):
        return [untrusted.text(item, 2000) for item in value]
    return None


def metrics(value: Any) -> dict[str, float | int | None]:
    """Every name of METRICS; None is not known."""
    known: Mapping[str, Any] = value if isinstance(value, dict) else {}
    return {name: untrusted.amount(known.get(name)) for name in METRICS}


def facts(value: Any) -> dict[str, Any]:
    """Those of FACTS that are known."""
    if not isinstance(value, dict):
        return {}
    kept = {name: _fact(value.get(name)) for name in FACTS}
    return {name: fact for name, fact in kept.items() if fact is not None}


def _fact(value: Any) -> str | float | int | None:
    return untrusted.text(value, MOST_TEXT) if isinstance(value, str) else untrusted.amount(value)
