"""Where engines and gateways are asked, as clients write it."""

import re
from collections.abc import Sequence

from deployments.models import SERVING, Deployment, Gateway, Replica

EVERYWHERE = ("0.0.0.0", "::")  # listens on all addresses, and is none
# A server tells its name itself, and people paste commands that hold it.
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.\-]{0,251}[A-Za-z0-9])?")


def base_url(address: str, port: int) -> str:
    """http://host:port of an address, IPv6 in brackets."""
    return f"http://{f'[{address}]' if ':' in address else address}:{port}"


def of_gateway(gateway: Gateway) -> str:
    """With its server's name where it listens on all addresses; '' while it has no port."""
    if not gateway.port:
        return ""
    address = gateway.address
    if address in EVERYWHERE:
        address = gateway.server.hostname if HOST.fullmatch(gateway.server.hostname) else "SERVER"
    return f"{base_url(address, gateway.port)}/v1"


def standing(deployment: Deployment) -> Gateway | None:
    """Its gateway, where it has one that is to run and has a port."""
    gateway: Gateway | None = getattr(deployment, "gateway", None)
    return gateway if gateway and gateway.enabled and gateway.port else None


def of(deployment: Deployment, replicas: Sequence[Replica]) -> str:
    """Its gateway's, else that of a replica that answers; '' where nothing does."""
    if gateway := standing(deployment):
        return of_gateway(gateway)
    one = next((one for one in replicas if one.state in SERVING and one.port), None)
    return f"{base_url(one.address, one.port)}/v1" if one else ""
