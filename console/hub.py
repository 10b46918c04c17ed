"""The live hub: one Redis pub/sub connection a process, fanned out to the outboxes of its sockets.

The order of joining keeps logs whole: the outbox is a listener first, then Redis acknowledges the subscription, and
only then is history read. What was published before the acknowledgement is in the database, what comes after it is in
the outbox, and numbers tell what is in both.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import redis.asyncio
from channels.db import database_sync_to_async
from django.conf import settings
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from console import streams
from console.message import Message, made
from console.outbox import TURN
from console.subscriptions import Client, Subscription

log = logging.getLogger(__name__)
T = TypeVar("T")

PING_S = 5.0  # also how long a channel outlives its last listener
DEAD_S = 12.0  # a connection that answers no ping for so long is given up
ACK_S = 2.0
PAUSE_S = (0.05, 2.0)  # before the first and the later attempts to connect
GATHER_S = 0.005
ALL = "*"  # the topic of what concerns every subscription of a socket


class Channel:
    """One topic that this process listens to."""

    __slots__ = ("acknowledged", "idle_since", "listeners", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.listeners: dict[Subscription, None] = {}
        self.acknowledged = asyncio.Event()
        self.idle_since: float | None = None


class SharedReads:
    """One read for all who ask for the same thing in the same moment.

    A read serves only those who asked before it began: one that had begun earlier may lack what they need.
    """

    def __init__(self) -> None:
        self._gathering: dict[Hashable, asyncio.Task[Any]] = {}

    async def read(self, key: Hashable, function: Callable[[], T]) -> T:
        """What `function` returns, called in the database's thread."""
        task = self._gathering.get(key)
        if task is None:
            task = self._gathering[key] = asyncio.create_task(self._run(key, function))
        found: T = await asyncio.shield(task)  # who leaves must not take it from the others
        return found

    async def _run(self, key: Hashable, function: Callable[[], T]) -> T:
        await asyncio.sleep(GATHER_S)
        del self._gathering[key]
        found: T = await database_sync_to_async(function)()
        return found


class LiveHub:
    """Topics of this process and the one connection that brings their messages."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.channels: dict[bytes, Channel] = {}
        self.clients: set[Client] = set()
        self.reads = SharedReads()
        self.lost_since: float | None = None  # epoch; None while connected, and before the first try has failed
        self._connection: AbstractConnection | None = None
        self._heard = 0.0
        self._task: asyncio.Task[None] | None = None

    def attach(self, client: Client) -> None:
        self.clients.add(client)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        if self.lost_since is not None:
            client.tell(self._stalled())

    def detach(self, client: Client) -> None:
        self.clients.discard(client)
        for subscription in list(client.subscriptions.values()):
            self.leave(subscription)

    async def join(self, subscription: Subscription) -> bool:
        """Listen to the topic. True when Redis has acknowledged it, False when that takes too long: it will later."""
        name = streams.live(subscription.topic).encode()
        is_new = name not in self.channels
        channel = self.channels.setdefault(name, Channel(subscription.topic))
        channel.listeners[subscription] = None
        channel.idle_since = None
        subscription.client.subscriptions[subscription.topic] = subscription
        if is_new:
            await self._ask("SUBSCRIBE", name)
        if self.lost_since is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ACK_S):
                    await channel.acknowledged.wait()
        return channel.acknowledged.is_set()

    def leave(self, subscription: Subscription) -> None:
        client = subscription.client
        subscription.outbox.clear()
        client.waiting.pop(subscription, None)
        if client.subscriptions.get(subscription.topic) is subscription:
            del client.subscriptions[subscription.topic]
        channel = self.channels.get(streams.live(subscription.topic).encode())
        if channel is not None:
            channel.listeners.pop(subscription, None)
            if not channel.listeners:
                channel.idle_since = time.monotonic()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        """Connect, listen, and after every loss connect again, with growing pauses."""
        pause = PAUSE_S[0]
        while True:
            try:
                await self._listen()
            except (redis.RedisError, OSError, TimeoutError) as error:
                if self._connection is not None or self.lost_since is None:
                    log.warning("the live hub lost Redis: %s", error)
            except Exception:
                log.exception("the live hub failed and starts again")
            if self._connection is not None:
                pause, self._connection = PAUSE_S[0], None
            self._set_lost()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(PAUSE_S[1], pause * 2)

    async def _listen(self) -> None:
        """One connection from its start to its loss."""
        connection = _connection(self.url)
        try:
            # Not wait_for: before Python 3.12 it may swallow a cancellation, and the process would never end.
            async with asyncio.timeout(ACK_S):
                await connection.connect()  # type: ignore[no-untyped-call]
            self._connection, self._heard = connection, time.monotonic()
            await connection.send_command("SUBSCRIBE", streams.LIVE, *self.channels)
            await self._keep(connection)
        finally:
            await connection.disconnect(nowait=True)

    async def _keep(self, connection: AbstractConnection) -> None:
        reader = asyncio.create_task(self._read(connection))
        try:
            while time.monotonic() - self._heard < DEAD_S:
                await asyncio.wait({reader}, timeout=PING_S)
                if reader.done():
                    return reader.result()
                await connection.send_command("PING")
                await self._drop_idle()
            raise TimeoutError(f"no answer for {DEAD_S:.0f} s")
        finally:
            reader.cancel()

    async def _read(self, connection: AbstractConnection) -> None:
        turn = 0
        while True:
            answer = await connection.read_response(disconnect_on_error=False)
            self._heard = time.monotonic()
            if answer[0] == b"message":
                self._fan_out(answer[1], answer[2])
                turn += 1
                if turn % TURN == 0:
                    # A busy connection never has to wait, and the senders must have their turn.
                    await asyncio.sleep(0)
            elif answer[0] == b"subscribe":
                self._acknowledge(answer[1])

    def _fan_out(self, name: bytes, payload: bytes) -> None:
        channel = self.channels.get(name)
        if channel is None or not channel.listeners:
            return
        try:
            message = Message(channel.topic, payload)
        except ValueError as error:
            log.warning("topic %s: %s", channel.topic, error)
            return
        for subscription in channel.listeners:
            subscription.offer(message)

    def _acknowledge(self, name: bytes) -> None:
        channel = self.channels.get(name)
        if channel is not None and not channel.acknowledged.is_set():
            channel.acknowledged.set()
            for subscription in channel.listeners:
                subscription.resume()
        if self.lost_since is not None and all(one.acknowledged.is_set() for one in self.channels.values()):
            self._set_found()

    def _set_lost(self) -> None:
        for channel in self.channels.values():
            channel.acknowledged.clear()
        if self.lost_since is None:
            self.lost_since = time.time()
            for client in self.clients:
                client.tell(self._stalled())

    def _set_found(self) -> None:
        log.info("the live hub has Redis again")
        notice = made(ALL, "live", {"since": time.time()})
        self.lost_since = None
        for client in self.clients:
            client.tell(notice)

    def _stalled(self) -> Message:
        return made(ALL, "stalled", {"since": self.lost_since})

    async def _ask(self, command: str, *names: bytes) -> None:
        """Send a command if there is a connection; a new one subscribes to everything anyway."""
        if self._connection is not None:
            with contextlib.suppress(redis.RedisError, OSError):
                await self._connection.send_command(command, *names)

    async def _drop_idle(self) -> None:
        """Give up channels that nobody listens to; only acknowledged ones, so that no answer is taken for another's."""
        before = time.monotonic() - PING_S
        idle = [
            name
            for name, channel in self.channels.items()
            if channel.idle_since is not None and channel.idle_since < before and channel.acknowledged.is_set()
        ]
        for name in idle:
            del self.channels[name]
        if idle:
            await self._ask("UNSUBSCRIBE", *idle)


def _connection(url: str) -> AbstractConnection:
    """A connection of the hub's own: it blocks for ever, and the hub itself reconnects and subscribes again."""
    pool = redis.asyncio.ConnectionPool.from_url(
        url, protocol=2, socket_timeout=None, socket_connect_timeout=ACK_S, retry=Retry(NoBackoff(), 0)
    )
    made: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call]
    return made


_hubs: "WeakKeyDictionary[asyncio.AbstractEventLoop, LiveHub]" = WeakKeyDictionary()


def hub() -> LiveHub:
    """The hub of this event loop; it connects when the first socket comes."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = LiveHub(settings.REDIS_URL)
    return _hubs[loop]
