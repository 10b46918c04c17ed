"""New keys for a server that goes on working: its HMAC key and its Redis password change and no job is lost.

1. asked: Redis takes both passwords; an order, signed with the old key, brings the new pair to the agent, which tries
   the password and from then on takes payloads signed with either key.
2. taken: the agent has answered. The console signs with the new key; then Redis drops the old password and hangs up.
3. closed: what the old key signed has left the server's queue; an order lets the agent forget it. The row goes.

`look_after` brings each rotation from where it stands to where it can be, whatever was cut off. One that the agent does
not answer within VALID_S comes to nothing: the old keys stay, and nobody is locked out.
"""

import logging
from collections.abc import Iterable
from datetime import timedelta

import redis
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from console import alerts, audit, streams
from console.errors import Conflict, NotAllowed, Unavailable
from console.models import User
from console.redis import client
from deployments import queues
from deployments.agent import credentials
from deployments.agent.credentials import Pair
from deployments.models import Order, OrderState, Phase, Rotation, Server
from deployments.row_locks import lock_server
from deployments.services import enrol, history, jobs, orders
from deployments.steps import Text

log = logging.getLogger(__name__)

VALID_S = 24 * 3600
DRAIN = timedelta(minutes=10)  # what the old key signed is sent again with the new one after that
AT_ONCE = 200


def start(server: Server, *, by: User) -> Rotation:
    """Begin. Raises NotAllowed, Conflict for a server whose keys cannot change so, Unavailable without Redis."""
    check_may(by)
    check_can(server)
    try:
        with transaction.atomic():
            server = lock_server(server.pk)
            if Rotation.objects.filter(server=server).exists():
                raise Conflict(
                    _("The keys of %(name)s are being changed already.") % {"name": server.name},
                    _("Wait until that has ended; its page says how far it is."),
                    code="rotation_under_way",
                )
            made = Rotation.objects.create(server=server, made_by=by)
            server.rotation = made
            audit.record(by, "server.keys_asked", server)
            enrol.apply_rights(client(), server)
            args = {"key": made.key, "password": made.password, "from": credentials.mark(pair_of(server))}
            orders.send(server, "rotate", args, by=by, valid_s=VALID_S)
    except redis.RedisError as error:
        raise Unavailable(
            _("The console cannot reach its Redis just now, so no keys were changed."),
            _("Try again in a minute."),
            code="redis_unavailable",
        ) from error
    return made


def start_all(servers: Iterable[Server], *, by: User) -> tuple[list[Rotation], list[tuple[Server, Conflict]]]:
    """Begin for many; what began, and who not and why. Raises NotAllowed, and Unavailable once Redis is away."""
    check_may(by)
    begun, refused = [], []
    for server in servers:
        try:
            begun.append(start(server, by=by))
        except Conflict as error:
            refused.append((server, error))
    return begun, refused


def check_may(by: User) -> None:
    """Raises NotAllowed."""
    if not by.may("administrator"):
        raise NotAllowed(_("Only an administrator may change the keys of servers."), _("Ask one to do it."))


def check_can(server: Server) -> None:
    """Raises Conflict for servers that have no keys of their own to change, or cannot be reached for long."""
    if server.simulated:
        raise Conflict(
            _("%(name)s is simulated: the demo's servers share one user.") % {"name": server.name},
            _("Choose real servers."),
            code="simulated",
        )
    jobs.check_present(server)
    if server.last_seen_at is None or server.is_offline:
        raise Conflict(
            _("%(name)s is silent, so its keys cannot be changed.") % {"name": server.name},
            _("Start its agent; or, where the keys are known to others, join it again with a new command."),
            code="server_offline",
        )


def pair_of(server: Server) -> Pair:
    return Pair(server.key, server.redis_password)


@orders.ended("rotate")
def _answered(order: Order) -> None:
    """The agent has the new pair, or will not have it. Within the transaction that notes the answer."""
    server = lock_server(order.server_id)
    found = Rotation.objects.select_for_update().filter(server=server, phase=Phase.ASKED).first()
    if found is None:
        return
    if order.state == OrderState.DONE:
        server.key, server.redis_password, server.keys_changed_at = found.key, found.password, timezone.now()
        server.save(update_fields=["key", "redis_password", "keys_changed_at"])
        Rotation.objects.filter(pk=found.pk).update(phase=Phase.TAKEN)
        audit.record(found.made_by, "server.keys_changed", server)
        history.record(server, "credentials", None, "rotated", by=found.made_by)
        alerts.resolve("keys-unchanged", f"server:{server.pk}")
    else:
        found.delete()
        audit.record(found.made_by, "server.keys_unchanged", server, why=order.answer.en)
        _alert(server, order.answer)
    transaction.on_commit(lambda: _close(server.pk))


def _alert(server: Server, why: Text) -> None:
    reason = Text(f"：{why.zh}", f": {why.en}") if why.en else Text("：代理没有答复", ": its agent has not answered")
    alerts.fire(
        "keys-unchanged",
        f"server:{server.pk}",
        what=Text(f"{server.name} 的密钥没有更换{reason.zh}", f"The keys of {server.name} were not changed{reason.en}"),
        do=Text(
            "旧密钥仍然有效。确认代理在线后再次更换；若密钥已泄露，请用新命令重新加入这台服务器。",
            "The old ones are still good. See that its agent is online and change them again; where they are known "
            "to others, join the server again with a new command.",
        ),
        link=f"/servers/{server.name}/",
    )


def _close(server_id: int) -> bool:
    """Redis takes what the row says, and nobody stays connected by an old password. False where Redis is away."""
    server = Server.objects.select_related("rotation").get(pk=server_id)
    try:
        enrol.apply_rights(client(), server)
        enrol.hang_up(client(), server)
    except redis.RedisError as error:
        log.warning("the rights of %s wait: %s", server.name, error)
        return False
    Rotation.objects.filter(server=server, phase=Phase.TAKEN).update(phase=Phase.CLOSED)
    return True


def look_after() -> None:
    """Bring every rotation on. One query where there is none."""
    for found in Rotation.objects.select_related("server").order_by("pk")[:AT_ONCE]:
        if found.phase == Phase.TAKEN:
            _close(found.server_id)
        elif found.phase == Phase.CLOSED and not found.server.is_offline:
            _let_forget(found)


def _let_forget(found: Rotation) -> None:
    server = found.server
    if Order.objects.filter(server=server, do="settle", state=OrderState.SENT).exists():
        return
    changed = server.keys_changed_at or found.started_at
    if timezone.now() - changed < DRAIN and not _is_drained(server):
        return
    orders.send(server, "settle", {"mark": credentials.mark(pair_of(server))})


def _is_drained(server: Server) -> bool:
    waiting = queues.queue(server.pk)
    try:
        return not client().exists(waiting.key, waiting.intermediate_queue_key, streams.orders(server.pk))
    except redis.RedisError:
        return False


@orders.ended("settle")
def _settled(order: Order) -> None:
    """Done; what failed or was not answered is tried again by `look_after`."""
    if order.state == OrderState.DONE:
        Rotation.objects.filter(server=order.server_id, phase=Phase.CLOSED).delete()
