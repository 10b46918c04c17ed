"""Agents go by other addresses of Redis and of the pages: whom an order hits, the order, and what came of it.

The agent tries the first address before it changes anything: deployments/agent/repoint.py.
"""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext as _

from console import addresses, alerts, audit, tls
from console.errors import Conflict, Invalid, NotAllowed
from console.language import pick
from console.models import User
from deployments.agent.addresses import problem
from deployments.agent.authorities import is_authority
from deployments.agent.repoint import MOST, PIN, WEB
from deployments.models import Order, OrderState, Server
from deployments.services import orders, selection
from deployments.services.versions import FIRST_TO_UPGRADE
from deployments.steps import Text

DO = "repoint"
ALERT = "repoint-failed"
VALID_S = 24 * 3600  # who is silent now hears it when it is back, at its old address
SHOWN = 200


class Wished(NamedTuple):
    """Where agents are to go: Redis in the order to try, and the pages ('' leaves those as they are).

    `ca` (PEM) are authorities to trust for Redis there, beside those that are trusted already.
    """

    redis: tuple[str, ...]
    console: str = ""
    pin: str = ""
    ca: str = ""


class Hit(NamedTuple):
    """Whom an order hits, and whom of those chosen it does not: (server, why)."""

    servers: list[Server]
    left_out: list[tuple[Server, str]]
    problems: list[str]


def read(redis: Sequence[str], console: str = "", pin: str = "", ca: str = "") -> Wished:
    """Raises Invalid, Conflict in words."""
    wished = tuple(dict.fromkeys(address.strip() for address in redis if address.strip()))
    console, pin = console.strip().rstrip("/"), pin.strip()
    if not 0 < len(wished) <= MOST:
        raise Invalid(
            _("There are %(n)s addresses of Redis.") % {"n": len(wished)},
            _("Give one to %(most)s, one a line, the one to be tried first on top.") % {"most": MOST},
            code="bad_address",
        )
    for address in wished:
        if why := problem(address):
            raise Invalid(
                _("“%(address)s” is no address of Redis: %(why)s.") % {"address": address[:80], "why": pick(why)},
                _("Write it as rediss://host:6380/0; user and password are each server's own."),
                code="bad_address",
            )
        _check_plain(address, "redis")
    if console and not WEB.fullmatch(console):
        raise Invalid(
            _("“%(address)s” is no address of the console's pages.") % {"address": console[:80]},
            _("Write it as https://console.example:8443."),
            code="bad_address",
        )
    if pin and not PIN.fullmatch(pin):
        raise Invalid(
            _("The key's digest is not as “curl --pinnedpubkey” takes it."), _("Write sha256//…="), code="bad_pin"
        )
    _check_plain(console, "http")
    if console == addresses.public_url() and not pin:
        pin = tls.fingerprint() or ""
    if ca.strip() and not is_authority(ca):
        raise Invalid(
            _("What was given as authority is no certificate."), _("Give ca.crt of the new console."), code="bad_ca"
        )
    return Wished(wished, console, pin, ca.strip())


def _check_plain(address: str, scheme: str) -> None:
    parts = urlsplit(address)
    if parts.scheme != scheme or addresses.is_loopback(parts.hostname or "") or settings.ALLOW_PLAINTEXT:
        return
    raise Conflict(
        _("Servers would reach %(address)s without TLS.") % {"address": address[:80]},
        _("Use %(scheme)ss://…, or ALLOW_PLAINTEXT=1 to do without.") % {"scheme": scheme},
        code="plaintext",
    )


def preview(names: Sequence[str] | None) -> Hit:
    """Whom it hits of these servers; None: of all that have joined. Raises Invalid where nobody was chosen."""
    if names is not None and not names:
        raise Invalid(_("No server was chosen."), _("Choose at least one."), code="no_server")
    servers, problems = selection.find(selection.Asked(names=list(names or []), fleet="both" if names else "real"))
    hit: list[Server] = []
    left_out = []
    for server in servers:
        why = _why_not(server)
        if why:
            left_out.append((server, why))
        else:
            hit.append(server)
    return Hit(hit, left_out, problems)


def _why_not(server: Server) -> str:
    if server.simulated or server.is_local:
        return _("its agent comes with the console")
    if not server.agent_version:
        return _("it was never heard")
    if server.agent_protocol < FIRST_TO_UPGRADE:
        return _("its agent is too old; let it join again")
    return ""


def check_may(by: User) -> None:
    """Raises NotAllowed."""
    if not by.may("administrator"):
        raise NotAllowed(
            _("Only an administrator may send agents to another address."), _("Ask one to do it."), code="not_allowed"
        )


def start(hit: Hit, wished: Wished, *, by: User | None) -> list[Order]:
    """Send the order to each; one that stands open already ends. `by` None is the console's own shell.

    Raises NotAllowed, Invalid, Conflict.
    """
    if by is not None:
        check_may(by)
    if hit.problems:
        raise Invalid(" ".join(hit.problems), _("Mend the selection and send it again."), code="bad_selection")
    if not hit.servers:
        raise Conflict(
            _("No agent of those chosen can be sent elsewhere."),
            _("Choose servers that have joined."),
            code="no_server",
        )
    args = {"redis": list(wished.redis), "console": wished.console, "pin": wished.pin, "ca": wished.ca}
    with transaction.atomic():
        before = Order.objects.filter(do=DO, state=OrderState.SENT, server__in=[server.pk for server in hit.servers])
        before.update(state=OrderState.EXPIRED, words="another order took its place\n已由另一条指令取代")
        sent = [orders.send(server, DO, args, by=by, valid_s=VALID_S) for server in hit.servers]
        for server in hit.servers:
            audit.record(by, "server.repointed", server, redis=list(wished.redis), console=wished.console)
    return sent


@orders.ended(DO)
def repointed(order: Order) -> None:
    """An order has ended: who could not follow is an alert, until one is followed."""
    subject = f"server:{order.server_id}"
    if order.state == OrderState.DONE:
        alerts.resolve(ALERT, subject)
        return
    name = order.server.name
    why = order.answer if order.words else Text("没有答复", "no answer")
    alerts.fire(
        ALERT, subject,
        what=Text(f"{name} 没有改用新的控制台地址（{why.zh}）。", f"{name} did not go to the new address ({why.en})."),
        do=Text(
            "它仍用旧地址。请改正地址、防火墙或新 Redis 中的账号，再发一次。",
            "It stays with the old one. Mend the address, the firewall or the new Redis's users, then send it again.",
        ),
        link="/servers/agents/addresses",
    )  # fmt: skip


def newest() -> list[Order]:
    """The newest order of each server, the newest first. Two queries at most."""
    rows = Order.objects.filter(do=DO).select_related("server", "made_by").order_by("-pk")[: 5 * SHOWN]
    seen: dict[int, Order] = {}
    for order in rows:
        seen.setdefault(order.server_id, order)
    return list(seen.values())[:SHOWN]
