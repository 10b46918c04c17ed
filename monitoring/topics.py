"""Topics of what is watched: the fleet as a whole, each server, and alerts."""

import contextlib
import json
import re
from typing import Any

import redis
from django.utils.translation import gettext as _

from console import alerts, streams
from console.errors import NotFound
from console.live import Present, Told, Topic, viewer
from console.message import Message, made, newest, newest_of_each
from console.redis import client
from deployments.models import Server
from monitoring.services import fleet_steps, live_state


def server_present(match: re.Match[str]) -> Present:
    """The server's "now", see monitoring/services/live_state.py. Raises NotFound."""
    server = Server.objects.filter(pk=int(match["id"])).first()
    if server is None:
        raise NotFound(_("There is no such server."), _("Open the fleet page and choose one."), code="no_such_server")
    now = live_state.now(server)
    return Present([Told("sample", now, now.get("seq"))])


def steps_present(match: re.Match[str]) -> Present:
    """Every cell's step: what changed between the page's making and its subscription is in it."""
    full = _full_steps(match["metric"])
    if full is None:
        return Present()
    return Present([Told("steps", fleet_steps.data_of(full["gen"], fleet_steps.from_letters(full["steps"])))])


def layout_present(match: re.Match[str]) -> Present:
    """The layout that is valid now; a page made of an older one asks for the new."""
    full = _full_steps(live_state.METRICS[0])
    return Present([Told("layout", {"gen": full["gen"]})] if full else [])


def _full_steps(metric: str) -> dict[str, Any] | None:
    """{gen, steps}, one letter of base 36 a cell, as ingest keeps it; None before the first sample or without Redis."""
    kept = None
    with contextlib.suppress(redis.RedisError):
        kept = client().hget(streams.FLEET_STEPS, metric)
    full: dict[str, Any] | None = json.loads(kept) if kept else None
    return full


def merge_rows(messages: list[Message]) -> list[Message]:
    """The newest values of every server, as one message."""
    rows: dict[str, object] = {}
    for message in messages:
        rows.update(message.data)
    return [made(messages[-1].topic, "rows", rows, messages[-1].seq)]


def merge_steps(messages: list[Message]) -> list[Message]:
    """All changes of the newest layout, as one message."""
    generation = messages[-1].data["gen"]
    steps: dict[int, int] = {}
    for message in messages:
        if message.data["gen"] == generation:
            steps.update(fleet_steps.steps_of(message.data))
    return [made(messages[-1].topic, "steps", fleet_steps.data_of(generation, steps), messages[-1].seq)]


def alerts_present(match: re.Match[str]) -> Present:
    return Present([Told("moved", alerts.counts()._asdict())])


TOPICS = [
    Topic(r"alerts", viewer, alerts_present, conflate=newest),
    Topic(r"fleet", viewer, layout_present, conflate=newest_of_each("id")),
    Topic(r"fleet:rows", viewer, conflate=merge_rows),
    Topic(rf"fleet:(?P<metric>{'|'.join(live_state.METRICS)})", viewer, steps_present, conflate=merge_steps),
    Topic(r"server:(?P<id>[1-9]\d{0,17})", viewer, server_present, conflate=newest),
]
