"""One socket's subscriptions, and the task that sends what they hold."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from django.db import Error as DatabaseError

from console.message import Message
from console.outbox import Outbox

log = logging.getLogger(__name__)


class Client:
    """One socket: its subscriptions, and the task that sends what they hold, a few messages from each in turn."""

    def __init__(self, send: Callable[[Any], Awaitable[None]]) -> None:
        self._send = send
        self.subscriptions: dict[str, Subscription] = {}
        self.waiting: dict[Subscription, None] = {}  # a set in order
        self.notice: Message | None = None
        self.wake = asyncio.Event()

    def send(self, message: Message) -> Awaitable[None]:
        return self._send(message.event)

    def tell(self, notice: Message) -> None:
        """Send this before anything else; the newest notice wins."""
        self.notice = notice
        self.wake.set()

    async def run(self) -> None:
        """Send for ever. Ends with the error of the socket."""
        while True:
            await self.wake.wait()
            self.wake.clear()
            while self.waiting or self.notice:
                if self.notice:
                    notice, self.notice = self.notice, None
                    await self.send(notice)
                elif self.waiting:
                    await self._turn(next(iter(self.waiting)))

    async def _turn(self, subscription: "Subscription") -> None:
        del self.waiting[subscription]
        try:
            more = await subscription.outbox.flush(self.send)
        except DatabaseError as error:
            log.warning("history of %s waits for the database: %s", subscription.topic, error)
            await asyncio.sleep(1)
            more = True
        if more:
            self.waiting[subscription] = None


class Subscription:
    """What one socket reads of one topic. Until it is `ready` its outbox only gathers."""

    __slots__ = ("client", "outbox", "ready", "topic")

    def __init__(self, client: Client, topic: str, outbox: Outbox) -> None:
        self.client = client
        self.topic = topic
        self.outbox = outbox
        self.ready = False

    def offer(self, message: Message) -> None:
        self.outbox.offer(message)
        if self.ready and self not in self.client.waiting:
            self.mark()

    def resume(self) -> None:
        self.outbox.resume()
        if self.ready:
            self.mark()

    def start(self) -> None:
        self.ready = True
        self.mark()

    def mark(self) -> None:
        self.client.waiting[self] = None
        self.client.wake.set()
