"""Resets of NPUs: which of them go together."""

from typing import Any

from django.utils.translation import gettext as _

from console.errors import Conflict, Invalid
from deployments.models import Npu, Server
from deployments.services import filling
from deployments.serving import topology


def together(server: Server, npu: Npu) -> list[Npu]:
    """The NPUs that are reset with this one: its card, and its ring; all of the server where the ring is not known."""
    every = list(server.npus.order_by("device_index"))
    links = topology.links(server.facts.get("topology"))
    called = topology.names_of([(one.npu_id, one.device_index) for one in every], set(links))
    if called is None:
        return every
    names = {one.pk: name for one, name in zip(every, called, strict=True)}
    reached, open_ = {npu.pk}, [npu]
    while open_:
        one = open_.pop()
        for other in every:
            near = any(word.upper().startswith(topology.NEAR) for word in _words(links, names[one.pk], names[other.pk]))
            if other.pk not in reached and (near or other.npu_id == one.npu_id):
                reached.add(other.pk)
                open_.append(other)
    return [one for one in every if one.pk in reached]


def _words(links: dict[str, dict[str, str]], one: str, other: str) -> list[str]:
    found = (links.get(one, {}).get(other), links.get(other, {}).get(one))
    return [word for word in found if word]


def fill(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """What a reset is filled in with. Raises Conflict, Invalid."""
    if str(params.get("confirm", "")).strip() != server.name:
        raise Invalid(
            _("What was typed is not the name of the server."),
            _("Type %(name)s to confirm.") % {"name": server.name},
            code="not_confirmed",
        )
    if server.simulated:
        raise Conflict(
            _("%(server)s is simulated: its NPUs cannot be reset.") % {"server": server.name},
            _("Choose a real server."),
            code="simulated",
        )
    wanted = str(params.get("npu", "")).strip().upper()
    npu = next((one for one in server.npus.all() if (one.bus_id or "").upper() == wanted), None)
    if npu is None:
        raise Invalid(
            _("%(server)s has no NPU %(bus_id)s.") % {"server": server.name, "bus_id": wanted[:40]},
            _("Name it by the bus id that its page shows, such as 0000:C1:00.0."),
            code="no_such_npu",
        )
    ring = together(server, npu)
    free = [one for one in ring if one.bus_id and one.bus_id.upper() not in server.cordons]
    return {
        "npu_id": npu.npu_id,
        "ring": sorted({name for one in free for name in (one.bus_id or "", f"{one.bus_id}/{one.chip_id}")}),
        "places": [f"{one.npu_id}.{one.chip_id}" for one in ring],
        "devices": ",".join(str(one.device_index) for one in ring),
    }


filling.FILLERS["reset"] = fill
