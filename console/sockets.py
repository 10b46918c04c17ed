"""The one websocket of a page: who is there, what it asks for, and an answer in words to what cannot be."""

import asyncio
import contextlib
import logging
import random
import re
from collections.abc import Callable
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth import SESSION_KEY
from django.db import Error as DatabaseError
from django.utils import translation
from django.utils.translation import gettext as _

from console import frames
from console.errors import ConsoleError, Invalid
from console.hub import LiveHub, hub
from console.live import MAX_NAME, Present, Topic
from console.message import Message, made
from console.models import User
from console.outbox import Latest, Numbered, Outbox
from console.subscriptions import Client, Subscription

log = logging.getLogger(__name__)

SIGNED_OUT, FOREIGN, TOO_MANY_ERRORS, FAILED = 4401, 4403, 4400, 1011
WATCH_S = 60.0  # how long a socket outlives its session, its user's role or its user


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """Reads {"op": "subscribe", "topic", "after"?, "attempt"?}, {"op": "unsubscribe", "topic"} and {"op": "ping"}."""

    client: Client | None = None
    hub: LiveHub
    tasks: "tuple[asyncio.Task[None], ...]" = ()
    errors = 0

    async def connect(self) -> None:
        await self.accept()
        self.language = frames.language_of(self.scope)
        if not frames.is_own_page(self.scope):
            await self._refuse(frames.other_site, FOREIGN)
        elif not self.scope["user"].is_authenticated or not self.scope["user"].is_active:
            await self._refuse(frames.signed_out, SIGNED_OUT)
        else:
            self.client, self.hub = Client(self.base_send), hub()
            self.hub.attach(self.client)
            self.tasks = (
                asyncio.create_task(self._send_for_ever(self.client)),
                asyncio.create_task(self._watch(self.client)),
            )

    async def disconnect(self, code: int) -> None:
        if self.client is not None:
            self.hub.detach(self.client)
        for task in self.tasks:
            if task is not asyncio.current_task():
                task.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.client is None:
            return  # refused; what it still says is not heard
        topic = ""
        with translation.override(self.language):
            try:
                frame = frames.read_frame(text_data)
                topic = str(frame.get("topic", ""))[:MAX_NAME]
                await self._act(self.client, frame)
            except ConsoleError as error:
                await self._answer_error(topic, error)
            except DatabaseError as error:
                log.warning("a subscription failed: %s", error)
                await self._answer_error(topic, frames.no_database())

    async def _act(self, client: Client, frame: dict[str, Any]) -> None:
        op = frame.get("op")
        if op == "subscribe":
            await self._subscribe(client, frame)
        elif op == "unsubscribe":
            if old := client.subscriptions.get(str(frame.get("topic"))):
                self.hub.leave(old)
        elif op == "ping":
            await client.send(made("", "pong", None))
        else:
            raise Invalid(
                _("“%(op)s” is nothing that this socket does.") % {"op": str(op)[:40]},
                _("Send subscribe, unsubscribe or ping."),
                code="unknown_op",
            )

    async def _subscribe(self, client: Client, frame: dict[str, Any]) -> None:
        name = frame.get("topic")
        topic, match = frames.find_topic(name)
        name = match.string
        frames.check_may(topic, match, self.scope["user"])
        attempt, after = frames.read_place(frame)
        old = client.subscriptions.get(name)
        if old is None and len(client.subscriptions) >= frames.MAX_TOPICS:
            raise frames.too_many()
        subscription = old or Subscription(client, name, self._outbox(topic, match))
        if old is None:
            await self.hub.join(subscription)
        try:
            present = await self.hub.reads.read(("present", name, self.language), lambda: topic.present(match))
        except BaseException:
            if old is None:
                self.hub.leave(subscription)
            raise
        if isinstance(subscription.outbox, Numbered):
            _place(subscription.outbox, present, attempt, after)
        await client.send(made(name, "subscribed", None))
        for told in present.messages:
            await client.send(made(name, *told))
        subscription.start()

    def _outbox(self, topic: Topic, match: re.Match[str]) -> Outbox:
        if topic.history is None:
            return Latest(topic.conflate or list)
        name, history, reads = match.string, topic.history, self.hub.reads

        def read(attempt: str, after: int) -> list[Message]:
            return [made(name, *told) for told in history(match, attempt, after)]

        return Numbered(
            name, lambda attempt, after: reads.read((name, attempt, after), lambda: read(attempt, after)), {}
        )

    async def _answer_error(self, topic: str, error: ConsoleError) -> None:
        with contextlib.suppress(OSError):  # the socket is gone
            await self.base_send(made(topic, "error", error.as_json()["error"]).event)
            self.errors += 1
            if self.errors >= frames.MAX_ERRORS:
                await self._refuse(frames.enough, TOO_MANY_ERRORS)

    async def _refuse(self, reason: Callable[[], ConsoleError], code: int) -> None:
        """Say why, then close; nothing is heard or sent afterwards."""
        with translation.override(self.language):
            error = reason()
        await self.disconnect(code)
        self.client, self.tasks = None, ()
        await self.base_send(made("", "error", error.as_json()["error"]).event)
        await self.close(code, error.code)

    async def _send_for_ever(self, client: Client) -> None:
        try:
            await client.run()
        except OSError:  # the socket is gone; `disconnect` follows
            return
        except Exception:
            log.exception("a socket's sender failed")
            with contextlib.suppress(Exception):
                await self.close(FAILED, "internal_error")

    async def _watch(self, client: Client) -> None:
        """From time to time: is the user still signed in, and may still read what is subscribed?"""
        while True:
            await asyncio.sleep(WATCH_S * random.uniform(0.75, 1.25))
            try:
                user = await database_sync_to_async(present_user)(self.scope)
            except DatabaseError as error:
                log.warning("a socket's user could not be looked up: %s", error)
                continue
            if user is None:
                return await self._refuse(frames.signed_out, SIGNED_OUT)
            self.scope["user"] = user
            for name, subscription in list(client.subscriptions.items()):
                await self._check_again(user, name, subscription)

    async def _check_again(self, user: User, name: str, subscription: Subscription) -> None:
        with translation.override(self.language):
            try:
                frames.check_may(*frames.find_topic(name), user)
            except ConsoleError as error:
                self.hub.leave(subscription)
                await self._answer_error(name, error)


class NoSuchSocket(AsyncWebsocketConsumer):  # type: ignore[misc]
    """Every other address: the handshake is refused."""

    async def connect(self) -> None:
        await self.close()


def present_user(scope: dict[str, Any]) -> User | None:
    """The socket's user as the database knows it now; None when signed out, switched off or given a new password."""
    known, session = scope["user"], scope.get("session")
    user = User.objects.filter(pk=known.pk, is_active=True).first()
    if user is None or user.password != known.password:
        return None
    if session is not None and SESSION_KEY not in session.__class__(session.session_key):  # read anew: ended or expired
        return None
    return user


def _place(outbox: Numbered, present: Present, attempt: str | None, after: int) -> None:
    """Go on where the page is, and with the newest attempt, which may have begun meanwhile."""
    if attempt is not None:
        outbox.go_on(attempt, after)
    if present.attempt is not None and present.attempt != attempt:
        outbox.go_on(present.attempt, 0)
