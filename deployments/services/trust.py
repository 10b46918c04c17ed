"""After a change of the console's authority, joined servers learn whom to trust for Redis, by an order.

Until each has, the authority of before vouches for the new one, so nobody is cut off meanwhile. Who could not obey, or
was silent for too long, is asked again within the hour.
"""

from collections.abc import Iterable

from console import addresses, certificates, tls
from deployments.agent import authorities
from deployments.models import Order, OrderState, Server
from deployments.services import orders

VALID_S = 90 * 86400


def behind() -> list[Server]:
    """Servers that joined before the authority was made, and have not said yet that they trust it; by name."""
    pem = addresses.redis_authority() if tls.is_own() else ""
    if not pem:
        return []
    made = certificates.read(pem).not_before + certificates.EARLIER
    early = Server.objects.filter(enrolments__used_at__lt=made, is_local=False, simulated=False)
    told = Order.objects.filter(do="trust", state=OrderState.DONE, words=authorities.digest(pem)).values("server")
    anew = Server.objects.filter(enrolments__used_at__gte=made).values("pk")
    return list(early.exclude(pk__in=told).exclude(pk__in=anew).distinct().order_by("name"))


def tell(servers: Iterable[Server]) -> int:
    """Send the order to those for whom none is under way; how many."""
    found = list(servers)
    pem = addresses.redis_authority()
    waiting = orders.waiting_for([server.pk for server in found], "trust")
    asked = [server for server in found if waiting.get(server.pk) is None or waiting[server.pk].args != {"pem": pem}]
    for server in asked:
        orders.send(server, "trust", {"pem": pem}, valid_s=VALID_S)
    return len(asked)
