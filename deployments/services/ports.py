"""Ports that engines and gateways listen on: each is leased for as long as its replica or gateway lives, out of ranges
that the site sets. Also the address of a server that they are bound to."""

import ipaddress
from collections.abc import Collection

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from console.errors import Conflict
from deployments.models import GONE, ExternalEngine, Gateway, PortLease, Replica, Server
from deployments.row_locks import lock_server
from deployments.services import inventory

# The setting with the range of each purpose, and how many ports from the leased one on belong to it.
RANGES = {
    "http": ("ENGINE_PORTS", 1),
    "ray": ("ENGINE_RAY_PORTS", 1),
    "dp": ("ENGINE_DP_PORTS", 1),
    "hccl": ("ENGINE_HCCL_PORTS", 32),  # HCCL takes 32 from HCCL_IF_BASE_PORT on
    "gateway": ("GATEWAY_PORTS", 1),
    "router": ("GATEWAY_PORTS", 1),
    "metrics": ("GATEWAY_PORTS", 1),
}
LOOPBACK = "127.0.0.1"


def lease(
    server: Server, *, replica: Replica | None = None, gateway: Gateway | None = None, purpose: str = "http",
    avoid: Collection[int] = (),
) -> int:  # fmt: skip
    """The port of this owner and purpose on the server: the one it has, else the lowest that is free, other than those
    to `avoid`. Raises Conflict where none is left."""
    if (replica is None) == (gateway is None):
        raise ValueError("a port is leased by a replica or by a gateway")
    with transaction.atomic():
        server = lock_server(server.pk)
        _sweep(server)
        rows = PortLease.objects.filter(server=server)
        mine = rows.filter(replica=replica, gateway=gateway, purpose=purpose).first()
        if mine is not None and mine.port not in avoid:
            return mine.port
        held = {*rows.values_list("port", flat=True), *avoid, *_named(server), *_of_others(server)}
        port = _free(server, purpose, held)
        if mine is not None:
            mine.delete()
        PortLease.objects.create(server=server, port=port, purpose=purpose, replica=replica, gateway=gateway)
    return port


def release(
    *, replica: Replica | None = None, gateway: Gateway | None = None, server: Server | None = None, purpose: str = ""
) -> int:
    """Give back what the owner has leased, on one server or for one purpose where that is said; how many."""
    if (replica is None) == (gateway is None):
        raise ValueError("a port is leased by a replica or by a gateway")
    rows = PortLease.objects.filter(replica=replica, gateway=gateway)
    rows = rows.filter(server=server) if server else rows
    rows = rows.filter(purpose=purpose) if purpose else rows
    return rows.delete()[0]


def _sweep(server: Server) -> None:
    """A replica that is gone keeps no port."""
    PortLease.objects.filter(server=server, replica__state__in=GONE).delete()


def _of_others(server: Server) -> set[int]:
    """Ports on which engines that are not ours were found."""
    there = ExternalEngine.objects.filter(server=server, gone_at=None).exclude(port=None)
    return {port for port in there.values_list("port", flat=True) if port is not None}


def promised(server: Server, *, but: Gateway) -> set[int]:
    """Ports of a server that somebody else than this gateway has."""
    leases = PortLease.objects.filter(server=server).exclude(gateway=but).exclude(replica__state__in=GONE)
    leased = {port + n for port, purpose in leases.values_list("port", "purpose") for n in range(RANGES[purpose][1])}
    return {*leased, *_named(server, but), *_of_others(server)}


def _named(server: Server, but: Gateway | None = None) -> set[int]:
    """Ports of gateways there, which somebody may have named without a lease."""
    found = Gateway.objects.filter(server=server, enabled=True).exclude(port=0)
    found = found.exclude(pk=but.pk) if but else found
    return set(found.values_list("port", flat=True))


def _free(server: Server, purpose: str, held: set[int]) -> int:
    name, width = RANGES[purpose]
    first, last = getattr(settings, name)
    for port in range(first, last + 2 - width, width):
        if not held & set(range(port, port + width)):
            return port
    raise Conflict(
        _("No port from %(first)s to %(last)s is left on %(server)s.")
        % {"first": first, "last": last, "server": server.name},
        _("Stop a replica there, or widen %(name)s and start the console again.") % {"name": name},
        code="no_port",
    )


# ---------- addresses ----------


def address_of(server: Server) -> str:
    """Where engines of the server listen: its service address, else that of its management, as somebody has set them;
    loopback on the console's own machine where that is the only one; else as they are guessed. Raises Conflict."""
    told: dict[str, str] = {role: address for address, role in sorted(server.address_roles.items(), reverse=True)}
    for role in ("service", "management"):
        if role in told:
            return told[role]
    if server.is_local and _is_alone(server):
        return LOOPBACK
    guessed = {
        row["role"]: row["address"]
        for row in reversed(inventory.guessed_roles(server))
        if _reaches_others(row["address"])
    }
    for role in ("service", "management"):
        if guessed.get(role):
            return guessed[role]
    if server.is_local or server.simulated:
        return LOOPBACK
    raise Conflict(
        _("No address of %(server)s is known by which others reach it.") % {"server": server.name},
        _("Give it a service address on the page Edit of the server."),
        code="no_address",
    )


def _reaches_others(address: str) -> bool:
    """Whether it may be a server's own by which others reach it: what a server says of itself may be anything, and the
    console, gateways and benchmarks send requests there."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return False
    odd = known.is_loopback or known.is_link_local or known.is_multicast or known.is_unspecified
    return not odd and "%" not in address


def _is_alone(server: Server) -> bool:
    return not Server.objects.present().filter(~Q(pk=server.pk), simulated=False).exists()
