"""Orders to agents: signed, sent, sent again until they are answered, and what follows from the answer.

    orders.send(server, "repoint", {"urls": […]}, by=user)

    @orders.ended("repoint")
    def repointed(order: Order) -> None: …     # once, in the transaction that notes the end; order.state says which

The agent's side is deployments/agent/orders.py. An order may reach an agent twice, and is obeyed once.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import redis
from django.db import transaction
from django.utils import timezone

from console import streams, untrusted
from console.models import User
from console.redis import client
from deployments.agent import signing
from deployments.models import Order, OrderState, Server
from deployments.row_locks import hold_servers

log = logging.getLogger(__name__)

VALID_S = 3600
RESEND_FIRST_S = 10
RESEND_MOST_S = 600
AT_ONCE = 500
MOST_WAITING = 20  # entries in one server's list; it is the server's own, and may be as long as it likes
MOST_ANSWERS = 16  # in one beat

Answers = list[tuple[str, str, str]]  # (nonce, state, words)

_after: dict[str, Callable[[Order], None]] = {}


def ended(do: str) -> Callable[[Callable[[Order], None]], Callable[[Order], None]]:
    """Register what follows when an order `do` has ended, done or not."""

    def register(act: Callable[[Order], None]) -> Callable[[Order], None]:
        _after[do] = act
        return act

    return register


def send(server: Server, do: str, args: Mapping[str, Any], *, by: User | None = None, valid_s: int = VALID_S) -> Order:
    """Note an order and push it after the commit; where Redis is away, ingest pushes it later."""
    now = timezone.now()
    order = Order.objects.create(
        server=server, do=do, args=dict(args), made_by=by, created_at=now, not_after=now + timedelta(seconds=valid_s)
    )
    transaction.on_commit(lambda: push(order))
    return order


def push(order: Order) -> bool:
    """Put the order on its server's list, signed with the key that the server has now. False when Redis is away."""
    key = Server.objects.values_list("key", flat=True).get(pk=order.server_id)
    body = json.dumps(
        {
            "op": "order",
            "do": order.do,
            "args": order.args,
            "server": order.server_id,
            "nonce": order.nonce,
            "not_after": int(order.not_after.timestamp()),
        },
        sort_keys=True,
        ensure_ascii=False,
        separators=(",", ":"),
    )
    entry = json.dumps({"body": body, "mac": signing.sign(key, body)}, ensure_ascii=False)
    try:
        if client().rpush(streams.orders(order.server_id), entry) > MOST_WAITING:
            client().ltrim(streams.orders(order.server_id), -MOST_WAITING, -1)
    except redis.RedisError as error:
        log.warning("order %s waits: %s", order.pk, error)
        return False
    order.pushed_at, order.pushes = timezone.now(), order.pushes + 1
    Order.objects.filter(pk=order.pk).update(pushed_at=order.pushed_at, pushes=order.pushes)
    return True


def read_answers(value: Any) -> Answers:
    """What a beat says about orders, cleaned; a server may send anything."""
    if not isinstance(value, list):
        return []
    rows = [row for row in value[:MOST_ANSWERS] if isinstance(row, list) and len(row) == 3]
    states = (OrderState.DONE, OrderState.FAILED)
    return [
        (nonce[:64], state, untrusted.text(words, 300))
        for nonce, state, words in rows
        if isinstance(nonce, str) and isinstance(words, str) and state in states
    ]


def take_answers(answers: Mapping[int, Answers]) -> list[Order]:
    """End the orders that their own servers (id: answers) have answered. Returns them."""
    told = {nonce: (pk, state, words) for pk, rows in answers.items() for nonce, state, words in rows}
    found = Order.objects.filter(nonce__in=list(told), state=OrderState.SENT) if told else Order.objects.none()
    done = []
    for order in found.select_related("server"):
        pk, state, words = told[order.nonce]
        if pk == order.server_id and _end(order, state, words):
            done.append(order)
    return done


def look_after(now: datetime) -> None:
    """End what is void, and push again what nobody has answered."""
    open_orders = Order.objects.filter(state=OrderState.SENT).select_related("server").order_by("pk")
    for order in open_orders[:AT_ONCE]:
        if order.not_after < now:
            _end(order, OrderState.EXPIRED, "")
        elif _is_due(order, now) and not _stands(order):
            push(order)


def drop(server: Server) -> None:
    """Nobody is there any more who could answer: its open orders end, with the secrets in them, and nothing follows."""
    rows = Order.objects.filter(server=server, state=OrderState.SENT)
    rows.update(state=OrderState.EXPIRED, answered_at=timezone.now(), args={})


def waiting_for(server_ids: Iterable[int], do: str) -> dict[int, Order]:
    """{server id: its newest open order of this name}. One query."""
    rows = Order.objects.filter(server__in=list(server_ids), do=do, state=OrderState.SENT).order_by("pk")
    return {order.server_id: order for order in rows}


def _end(order: Order, state: str, words: str) -> bool:
    """Note the end and do what follows. False where somebody else was first."""
    with transaction.atomic():
        hold_servers([order.server_id])  # before the order: what follows decides about the server
        values = {"state": state, "words": words, "answered_at": timezone.now(), "args": {}}
        if not Order.objects.filter(pk=order.pk, state=OrderState.SENT).update(**values):
            return False
        order.state, order.words = state, words
        act = _after.get(order.do)
        if act is not None:
            act(order)
    return True


def _is_due(order: Order, now: datetime) -> bool:
    if order.pushed_at is None:
        return True
    wait = min(RESEND_MOST_S, RESEND_FIRST_S * 2 ** min(order.pushes, 10))
    return not order.server.is_offline and now - order.pushed_at > timedelta(seconds=wait)


def _stands(order: Order) -> bool:
    """Whether entries wait in the server's list still; unknown counts as yes."""
    try:
        return order.pushed_at is not None and bool(client().exists(streams.orders(order.server_id)))
    except redis.RedisError:
        return True
