"""The few figures of an engine's /metrics that its state tells: known names only, and None for what is not known."""

import math
import time
from collections import deque
from typing import Any, NamedTuple

WINDOW_S = 15.0
NAMES = ("running", "waiting", "kv_pct", "prompt_tokens_s", "generation_tokens_s", "ttft_ms", "tpot_ms",
         "requests_total", "errors_total")  # fmt: skip
NOTHING: dict[str, float | int | None] = dict.fromkeys(NAMES)
SUMMED = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:prompt_tokens_total": "prompt",
    "vllm:generation_tokens_total": "generation",
    "vllm:request_success_total": "requests",
    "vllm:time_to_first_token_seconds_sum": "ttft_sum",
    "vllm:time_to_first_token_seconds_count": "ttft_count",
    "vllm:request_time_per_output_token_seconds_sum": "tpot_sum",
    "vllm:request_time_per_output_token_seconds_count": "tpot_count",
    "vllm:time_per_output_token_seconds_sum": "old_tpot_sum",  # before 0.12
    "vllm:time_per_output_token_seconds_count": "old_tpot_count",
}
GREATEST = {"vllm:kv_cache_usage_perc": "kv", "vllm:gpu_cache_usage_perc": "kv"}  # the second before 0.10


class Reading(NamedTuple):
    at: float  # monotonic seconds
    values: dict[str, float]


def values(text: str) -> dict[str, float]:
    """What is known of one answer: sums over its engines, of the KV cache the fullest."""
    found: dict[str, float] = {}
    for line in text.split("\n"):
        if line.startswith("http_requests_total{") and (value := _number(line)) is not None:
            failed = value if 'status="5xx"' in line else 0.0
            found["errors"] = found.get("errors", 0.0) + failed
        if not line.startswith("vllm:"):
            continue
        name, value = line.partition("{")[0].split(" ")[0], _number(line)
        if value is None:
            continue
        if (short := SUMMED.get(name)) is not None:
            found[short] = found.get(short, 0.0) + value
        elif (short := GREATEST.get(name)) is not None:
            found[short] = max(found.get(short, 0.0), value)
    return found


def _number(line: str) -> float | None:
    """The value behind the labels; a timestamp may follow it."""
    words = line[line.rfind("}") + 1 :].split() if "}" in line else line.split()[1:]
    try:
        value = float(words[0])
    except (IndexError, ValueError):
        return None
    return value if math.isfinite(value) and value >= 0 else None


class Meter:
    """Rates and means over the last 15 s, of readings every few seconds. `now` replaces the clock in tests."""

    def __init__(self) -> None:
        self.readings: deque[Reading] = deque()

    def clear(self) -> None:
        self.readings.clear()

    def take(self, text: str, now: float | None = None) -> dict[str, Any]:
        """The figures of NAMES after one more answer."""
        newest = Reading(time.monotonic() if now is None else now, values(text))
        if self.readings and newest.values.get("prompt", 0.0) < self.readings[-1].values.get("prompt", 0.0):
            self.readings.clear()  # the engine has begun anew
        self.readings.append(newest)
        while len(self.readings) > 2 and self.readings[1].at <= newest.at - WINDOW_S:
            self.readings.popleft()
        return self._figures(self.readings[0], newest)

    def _figures(self, oldest: Reading, newest: Reading) -> dict[str, Any]:
        found, took_s = newest.values, newest.at - oldest.at

        def grown(name: str) -> float | None:
            if name not in found or name not in oldest.values or found[name] < oldest.values[name]:
                return None
            return found[name] - oldest.values[name]

        def rate(name: str) -> float | None:
            more = grown(name)
            return round(more / took_s, 2) if more is not None and took_s > 0 else None

        def mean_ms(name: str) -> float | None:
            more, times = grown(f"{name}_sum"), grown(f"{name}_count")
            return round(more / times * 1000, 3) if more is not None and times else None

        return {
            "running": _whole(found.get("running")),
            "waiting": _whole(found.get("waiting")),
            "kv_pct": round(found["kv"] * 100, 2) if "kv" in found else None,
            "prompt_tokens_s": rate("prompt"),
            "generation_tokens_s": rate("generation"),
            "ttft_ms": mean_ms("ttft"),
            "tpot_ms": mean_ms("tpot" if "tpot_sum" in found else "old_tpot"),
            "requests_total": _whole(found.get("requests")),
            "errors_total": _whole(found.get("errors")),  # answers with a status of 500 or above
        }


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
