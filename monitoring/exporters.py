"""/metrics: the console's own view of the fleet for Prometheus. Simulated servers carry simulated="true"."""

import json
import time
from collections import Counter
from collections.abc import Iterator

import redis
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from console import streams, tokens
from console.errors import ConsoleError
from console.redis import client
from monitoring.services import live_state


class Fleet(Collector):
    """Counts of servers by state and of NPUs by occupancy; a value nobody knows is left out."""

    def collect(self) -> Iterator[Metric]:
        nows = live_state.all_now()
        servers: Counter[tuple[str, ...]] = Counter((now["state"], _simulated(now)) for now in nows)
        npus: Counter[tuple[str, ...]] = Counter((npu["occ"], _simulated(now)) for now in nows for npu in now["npus"])
        faulty = Counter(dict.fromkeys(("false", "true"), 0))
        for now in nows:
            faulty[_simulated(now)] += sum(map(live_state.is_faulty, now["npus"]))
        yield _family("servers", "Servers by state", ["state", "simulated"], servers)
        yield _family("npus", "NPUs by occupancy", ["occupancy", "simulated"], npus)
        yield _family(
            "npus_faulty", "NPUs whose health is not OK", ["simulated"], Counter({(k,): v for k, v in faulty.items()})
        )
        yield from _ingest()


def _simulated(now: live_state.Now) -> str:
    return "true" if now["simulated"] else "false"


def _family(name: str, help: str, labels: list[str], counts: "Counter[tuple[str, ...]]") -> Metric:
    family = GaugeMetricFamily(f"ascend_console_{name}", help, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(list(values), count)
    return family


def _ingest() -> Iterator[Metric]:
    try:
        kept = client().get(streams.INGEST_ALIVE)
        said = json.loads(kept) if kept else None
    except (redis.RedisError, ValueError):
        said = None
    if said:
        yield GaugeMetricFamily(
            "ascend_console_ingest_age_seconds", "Since ingest last reported", value=time.time() - said["t"]
        )
        yield GaugeMetricFamily(
            "ascend_console_ingest_lag_seconds", "How far ingest is behind", value=said["lag_ms"] / 1000
        )


@login_not_required
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text for whoever signs in or sends a bearer token of any role."""
    if tokens.caller(request) is None:
        raise ConsoleError(
            _("The call carries no valid token."),
            _("Give Prometheus a token as its bearer_token."),
            code="not_signed_in",
            status=401,
        )
    registry = CollectorRegistry()
    registry.register(Fleet())
    return HttpResponse(generate_latest(registry), content_type="text/plain; version=0.0.4; charset=utf-8")
