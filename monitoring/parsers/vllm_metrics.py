"""`GET /metrics` of a vLLM server: load, cache, counters and latencies, of the names that are known alone.

Several engines of one server (data parallel) are added up; the use of their caches is averaged. What the server does
not print is None, never 0. `between` makes rates and latencies of two readings.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from monitoring.parsers import _text
from monitoring.parsers.failures import Unreadable, give_up

COMMAND = "GET /metrics of a vLLM server"

# What is read, under every name that releases of vLLM print it by, the newest first. Where a release prints two of
# them, the first counts. Counters end in _total.
GAUGES = {
    "running": ("num_requests_running",),
    "waiting": ("num_requests_waiting",),
    "kv_share": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
}
COUNTERS = {
    "preemptions": ("num_preemptions",),
    "prompt_tokens": ("prompt_tokens",),
    "generation_tokens": ("generation_tokens",),
    "requests": ("request_success",),
    "prefix_queries": ("prefix_cache_queries", "gpu_prefix_cache_queries"),
    "prefix_hits": ("prefix_cache_hits", "gpu_prefix_cache_hits"),
}
HISTOGRAMS = {
    "ttft": ("time_to_first_token_seconds",),
    "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "tpot": ("request_time_per_output_token_seconds",),
    "e2e": ("e2e_request_latency_seconds",),
    "queue": ("request_queue_time_seconds",),
}
KNOWN = {
    name: group
    for group, names in {**GAUGES, **COUNTERS, **HISTOGRAMS}.items()
    for name in names
}  # fmt: skip

SERIES = re.compile(r"vllm:(\w{1,80})(?:\{([^}]{0,2000})\})?[ \t]+(\S{1,40})(?:[ \t]+-?\d{1,19})?[ \t]*")
EDGE = re.compile(r'(?:^|,)le="([^"]{1,24})"')
MOST = 10.0**15
MOST_BUCKETS = 200


@dataclass(frozen=True, slots=True)
class Histogram:
    """`buckets`: (upper edge in seconds, how many were at most that), rising, the last edge infinite."""

    buckets: tuple[tuple[float, float], ...]
    count: float
    sum_s: float | None

    def since(self, before: "Histogram | None") -> "Histogram | None":
        """What came between two readings; None where the edges changed or the counter began anew."""
        if before is None or [edge for edge, _n in before.buckets] != [edge for edge, _n in self.buckets]:
            return None
        buckets = tuple((edge, n - old) for (edge, n), (_edge, old) in zip(self.buckets, before.buckets, strict=True))
        if self.count < before.count or any(n < 0 for _edge, n in buckets):
            return None
        known = self.sum_s is not None and before.sum_s is not None and self.sum_s >= before.sum_s
        return Histogram(buckets, self.count - before.count, self.sum_s - before.sum_s if known else None)  # type: ignore[operator]

    def quantile_ms(self, share: float) -> float | None:
        """Milliseconds that so great a share stayed below, by a line within its bucket as Prometheus draws it; None
        without observations. Beyond the last edge nothing is known but that edge, which is the answer."""
        total = self.buckets[-1][1] if self.buckets else 0
        if total <= 0:
            return None
        wanted, low, below = share * total, 0.0, 0.0
        for edge, n in self.buckets:
            if n >= wanted and n > below:
                return 1000 * (low if math.isinf(edge) else low + (edge - low) * (wanted - below) / (n - below))
            low, below = (low if math.isinf(edge) else edge), n
        return 1000 * low

    def mean_ms(self) -> float | None:
        return 1000 * self.sum_s / self.count if self.sum_s is not None and self.count > 0 else None

    def as_json(self) -> dict[str, Any]:
        """The edges as printed, the infinite one as "+Inf"."""
        edges = [["+Inf" if math.isinf(edge) else edge, n] for edge, n in self.buckets]
        return {"count": self.count, "sum_s": self.sum_s, "buckets": edges}


@dataclass(frozen=True, slots=True)
class Metrics:
    """One reading. Counters run since the start of the engine; `kv_pct` is 0 … 100."""

    running: float | None = None
    waiting: float | None = None
    kv_pct: float | None = None
    preemptions: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    requests: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    ttft: Histogram | None = None
    itl: Histogram | None = None
    tpot: Histogram | None = None
    e2e: Histogram | None = None
    queue: Histogram | None = None

    def as_json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {name: v.as_json() if isinstance(v, Histogram) else v for name, v in plain.items()}


@dataclass(frozen=True, slots=True)
class Rates:
    """What two readings say of the time between them; None where one of both did not know."""

    prompt_tokens_s: float | None
    generation_tokens_s: float | None
    requests_s: float | None
    preemptions_s: float | None
    prefix_hit_pct: float | None
    ttft_ms: float | None  # the middle one of those that began to answer
    ttft_p99_ms: float | None
    tpot_ms: float | None
    itl_ms: float | None
    e2e_ms: float | None

    def as_json(self) -> dict[str, float | None]:
        return asdict(self)


def parse(text: str) -> Metrics | Unreadable:
    """Raises ParseError where no name is known."""
    found: dict[str, dict[str, list[float]]] = {}
    for line in _text.lines(text):
        if line.startswith("vllm:") and (series := SERIES.fullmatch(line)):
            _take(found, *series.groups())
    metrics = _metrics(found)
    return metrics if metrics != Metrics() else give_up(text)


def _take(found: dict[str, dict[str, list[float]]], name: str, labels: str | None, digits: str) -> None:
    """One series: its values under the name without its ending, by the part of a histogram it is."""
    value = _number(digits)
    if value is None:
        return
    for ending, part in (("_bucket", "le"), ("_count", "count"), ("_sum", "sum"), ("_total", ""), ("", "")):
        base = name.removesuffix(ending)
        if (not ending or base != name) and base in KNOWN:
            if part == "le":
                edge = EDGE.search(labels or "")
                part = f"le {edge[1]}" if edge else "none"
            parts = found.setdefault(base, {})
            if part in parts or len(parts) < MOST_BUCKETS:
                parts.setdefault(part, []).append(value)
            return


def _number(digits: str) -> float | None:
    """A number as Prometheus prints it, exponents too; None for NaN, infinite ones, and what is none."""
    try:
        value = float(digits)
    except ValueError:
        return None
    return value if math.isfinite(value) and abs(value) <= MOST and "_" not in digits else None


def _metrics(found: Mapping[str, Mapping[str, list[float]]]) -> Metrics:
    values: dict[str, Any] = {}
    for group, names in {**GAUGES, **COUNTERS}.items():
        values[group] = next((sum(found[name][""]) for name in names if "" in found.get(name, {})), None)
    share = next((found[name][""] for name in GAUGES["kv_share"] if "" in found.get(name, {})), None)
    del values["kv_share"]
    values["kv_pct"] = None if share is None else 100 * sum(share) / len(share)
    for group, names in HISTOGRAMS.items():
        values[group] = next((h for name in names if (h := _histogram(found.get(name, {})))), None)
    return Metrics(**values)


def _histogram(parts: Mapping[str, list[float]]) -> Histogram | None:
    """None where its buckets or its count are not there, or do not belong together."""
    edges: dict[float, float] = {}
    for part, values in parts.items():
        word = part.removeprefix("le ")
        edge = math.inf if word == "+Inf" else _number(word)
        if word != part and edge is not None:
            edges[edge] = edges.get(edge, 0) + sum(values)
    buckets = tuple(sorted(edges.items()))
    if not buckets or not math.isinf(buckets[-1][0]) or any(b[1] < a[1] for a, b in pairwise(buckets)):
        return None
    count = sum(parts["count"]) if "count" in parts else buckets[-1][1]
    return Histogram(buckets, count, sum(parts["sum"]) if "sum" in parts else None)


def between(before: Metrics, after: Metrics, seconds: float) -> Rates:
    """Rates and latencies of the time between two readings. An engine that was started anew in between counts from 0,
    so its counters fell: that rate is None."""

    def rate(name: str) -> float | None:
        old, new = getattr(before, name), getattr(after, name)
        if old is None or new is None or new < old or seconds <= 0:
            return None
        return float(new - old) / seconds

    def part(name: str) -> Histogram | None:
        whole = getattr(after, name)
        return whole.since(getattr(before, name)) if whole else None

    ttft, tpot, itl, e2e = part("ttft"), part("tpot"), part("itl"), part("e2e")
    asked, hit = rate("prefix_queries"), rate("prefix_hits")
    return Rates(
        rate("prompt_tokens"), rate("generation_tokens"), rate("requests"), rate("preemptions"),
        min(100.0, 100 * hit / asked) if asked and hit is not None else None,
        ttft.quantile_ms(0.5) if ttft else None, ttft.quantile_ms(0.99) if ttft else None,
        tpot.mean_ms() if tpot else None, itl.mean_ms() if itl else None, e2e.quantile_ms(0.5) if e2e else None,
    )  # fmt: skip
