"""Topics of what is watched: the fleet as a whole, and each server."""

import base64
import re
from collections.abc import Mapping

from django.utils.translation import gettext as _

from console.errors import NotFound
from console.live import Present, Told, Topic, viewer
from console.message import Message, made, newest, newest_of_each
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
    data = {"gen": generation, "z": base64.b64encode(write_steps(steps)).decode()}
    return [made(messages[-1].topic, "steps", data, messages[-1].seq)]


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
    Topic(r"fleet", viewer, conflate=newest_of_each("id")),
    Topic(r"fleet:rows", viewer, conflate=merge_rows),
    Topic(rf"fleet:(?:{'|'.join(live_state.METRICS)})", viewer, conflate=merge_steps),
    Topic(r"server:(?P<id>[1-9]\d{0,17})", viewer, server_present, conflate=newest),
]
