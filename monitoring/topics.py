"""Topics of what is watched: the fleet as a whole, and each server."""

import base64
import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any

import redis
from django.utils.translation import gettext as _

from console import streams
from console.errors import NotFound
from console.live import Present, Told, Topic, viewer
from console.message import Message, made, newest, newest_of_each
from console.redis import client
from deployments.models import Server
from monitoring.services import live_state
from monitoring.services.fleet_steps import varint


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
    steps = {place: int(letter, 36) for place, letter in enumerate(full["steps"])}
    return Present([Told("steps", _steps_data(full["gen"], steps))])


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
            steps.update(read_steps(base64.b64decode(message.data["z"])))
    return [made(messages[-1].topic, "steps", _steps_data(generation, steps), messages[-1].seq)]


def _steps_data(generation: int, steps: Mapping[int, int]) -> dict[str, object]:
    return {"gen": generation, "z": base64.b64encode(write_steps(steps)).decode()}


def read_steps(pairs: bytes) -> dict[int, int]:
    """{place: step} of the pairs (gap, step) that fleet_steps.delta writes."""
    numbers: list[int] = []
    number = shift = 0
    for byte in pairs:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
    steps: dict[int, int] = {}
    place = -1
    for gap, step in zip(numbers[::2], numbers[1::2], strict=True):
        place += gap + 1
        steps[place] = step
    return steps


def write_steps(steps: Mapping[int, int]) -> bytes:
    """The pairs of `read_steps`."""
    pairs = bytearray()
    last = -1
    for place in sorted(steps):
        pairs += varint(place - last - 1) + varint(steps[place])
        last = place
    return bytes(pairs)


TOPICS = [
    Topic(r"fleet", viewer, layout_present, conflate=newest_of_each("id")),
    Topic(r"fleet:rows", viewer, conflate=merge_rows),
    Topic(rf"fleet:(?P<metric>{'|'.join(live_state.METRICS)})", viewer, steps_present, conflate=merge_steps),
    Topic(r"server:(?P<id>[1-9]\d{0,17})", viewer, server_present, conflate=newest),
]
