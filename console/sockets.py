"""The one websocket of a page: who is there, what it asks for, and an answer in words to what cannot be."""

import asyncio
import contextlib
import json
import logging
import re
from typing import Any
from urllib.parse import urlsplit

from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.db import Error as DatabaseError
from django.utils import translation
from django.utils.translation import gettext as _

from console.errors import ConsoleError, Invalid, NotAllowed, NotFound, Unavailable
from console.hub import LiveHub, hub
from console.live import MAX_NAME, Present, Told, Topic, topics
from console.message import Message, made
from console.outbox import Latest, Numbered, Outbox
from console.subscriptions import Client, Subscription

log = logging.getLogger(__name__)

MAX_FRAME = 4096  # characters
MAX_TOPICS = 50
MAX_ERRORS = 100  # of one socket, before it is closed
SIGNED_OUT, FOREIGN, TOO_MANY_ERRORS, FAILED = 4401, 4403, 4400, 1011
MAX_LINE = 2**53  # the largest whole number that JavaScript holds
ATTEMPT = re.compile(r"[\w-]{1,40}")


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """Reads {"op": "subscribe", "topic", "after"?, "attempt"?}, {"op": "unsubscribe", "topic"} and {"op": "ping"}."""

    client: Client | None = None
    hub: LiveHub
    sender: "asyncio.Task[None] | None" = None
    errors = 0

    async def connect(self) -> None:
        await self.accept()
        self.language = language_of(self.scope)
        if not is_own_page(self.scope):
            await self._refuse(_other_site, FOREIGN)
        elif not self.scope["user"].is_authenticated or not self.scope["user"].is_active:
            await self._refuse(_signed_out, SIGNED_OUT)
        else:
            self.client, self.hub = Client(self.base_send), hub()
            self.hub.attach(self.client)
            self.sender = asyncio.create_task(self._send_for_ever(self.client))

    async def disconnect(self, code: int) -> None:
        if self.client is not None:
            self.hub.detach(self.client)
        if self.sender is not None:
            self.sender.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.client is None:
            return  # refused; what it still says is not heard
        topic = ""
        with translation.override(self.language):
            try:
                frame = read_frame(text_data)
                topic = str(frame.get("topic", ""))[:MAX_NAME]
                await self._act(self.client, frame)
            except ConsoleError as error:
                await self._answer_error(topic, error)
            except DatabaseError as error:
                log.warning("a subscription failed: %s", error)
                await self._answer_error(topic, _no_database())

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
        topic, match = find_topic(name)
        name = match.string
        _check_may(topic, self.scope["user"], match)
        attempt, after = read_place(frame)
        old = client.subscriptions.get(name)
        if old is None and len(client.subscriptions) >= MAX_TOPICS:
            raise _too_many()
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
        told = Told("error", error.as_json()["error"])
        with contextlib.suppress(OSError):  # the socket is gone
            await self.base_send(made(topic, *told).event)
            self.errors += 1
            if self.errors >= MAX_ERRORS:
                await self._refuse(_enough, TOO_MANY_ERRORS)

    async def _refuse(self, reason: Any, code: int) -> None:
        """Say why, then close; nothing is heard or sent afterwards."""
        with translation.override(self.language):
            error = reason()
        await self.disconnect(code)
        self.client = self.sender = None
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


class NoSuchSocket(AsyncWebsocketConsumer):  # type: ignore[misc]
    """Every other address: the handshake is refused."""

    async def connect(self) -> None:
        await self.close()


def read_frame(text: str | None) -> dict[str, Any]:
    """The object that a frame holds. Raises Invalid in words."""
    if text is None:
        raise Invalid(_("A binary frame cannot be read here."), _("Send JSON as text."), code="bad_frame")
    if len(text) > MAX_FRAME:
        raise Invalid(
            _("The frame is longer than %(most)s characters.") % {"most": MAX_FRAME},
            _("Send one subscription a frame."),
            code="too_large",
        )
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        frame = None
    if not isinstance(frame, dict):
        raise Invalid(
            _("The frame is not a JSON object."),
            _('Send for example {"op": "subscribe", "topic": "fleet"}.'),
            code="bad_json",
        )
    return frame


def read_place(frame: dict[str, Any]) -> tuple[str | None, int]:
    """(attempt, after): where the page wants to go on; `after` counts only together with an attempt."""
    attempt, after = frame.get("attempt"), frame.get("after")
    is_line = after is None or (isinstance(after, int) and not isinstance(after, bool) and 0 <= after < MAX_LINE)
    is_attempt = attempt is None or (isinstance(attempt, str) and ATTEMPT.fullmatch(attempt) is not None)
    if not is_line or not is_attempt:
        raise Invalid(
            _("“after” must be a line number, and “attempt” the name of an attempt."),
            _("Leave both out to begin at the start."),
            code="bad_place",
        )
    return attempt, after or 0


def find_topic(name: Any) -> tuple[Topic, re.Match[str]]:
    """The kind of topic that a name belongs to. Raises NotFound."""
    if isinstance(name, str) and len(name) <= MAX_NAME:
        for topic in topics():
            if match := re.fullmatch(topic.pattern, name, re.ASCII):
                return topic, match
    raise NotFound(
        _("There is no topic “%(name)s”.") % {"name": str(name)[:40]},
        _("Use fleet, jobs, server:ID or job:ID."),
        code="unknown_topic",
    )


def is_own_page(scope: dict[str, Any]) -> bool:
    """True when the page that opened the socket is ours: cookies go along with sockets of other sites too.

    Programs send no Origin. Ports are compared only where both are named: proxies drop them.
    """
    headers = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
    origin = headers.get(b"origin", "")
    if not origin or origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    try:
        theirs, ours = urlsplit(origin), urlsplit(f"//{headers.get(b'host', '')}")
        same_port = theirs.port is None or ours.port is None or theirs.port == ours.port
        return theirs.hostname is not None and theirs.hostname == ours.hostname and same_port
    except ValueError:
        return False


def language_of(scope: dict[str, Any]) -> str:
    """The language this page is shown in: its cookie, else the user's own, else the browser's, else the default."""
    headers = dict(scope.get("headers", ()))
    accepted = headers.get(b"accept-language", b"").decode("latin-1")[:200].replace(";", ",").split(",")
    wishes = [scope.get("cookies", {}).get(settings.LANGUAGE_COOKIE_NAME), getattr(scope.get("user"), "language", "")]
    for wish in (*wishes, *accepted):
        with contextlib.suppress(LookupError):
            if wish:
                return translation.get_supported_language_variant(wish.strip().lower())
    return settings.LANGUAGE_CODE


def _place(outbox: Numbered, present: Present, attempt: str | None, after: int) -> None:
    """Go on where the page is, and with the newest attempt, which may have begun meanwhile."""
    if attempt is not None:
        outbox.go_on(attempt, after)
    if present.attempt is not None and present.attempt != attempt:
        outbox.go_on(present.attempt, 0)


def _check_may(topic: Topic, user: Any, match: re.Match[str]) -> None:
    if not topic.may(user, match):
        raise NotAllowed(
            _("Your role may not read “%(topic)s”.") % {"topic": match.string},
            _("Ask an administrator for a role that may."),
        )


def _too_many() -> ConsoleError:
    return Invalid(
        _("This page already reads %(most)s topics.") % {"most": MAX_TOPICS},
        _("Unsubscribe from one that is no longer shown."),
        code="too_many",
    )


def _signed_out() -> ConsoleError:
    return NotAllowed(_("You are not signed in."), _("Sign in and open the page again."), code="not_signed_in")


def _other_site() -> ConsoleError:
    return NotAllowed(
        _("The page that asks belongs to another site."),
        _("Open the console at its own address, or name the other one in CSRF_TRUSTED_ORIGINS."),
        code="other_site",
    )


def _enough() -> ConsoleError:
    return Invalid(
        _("This socket sent %(most)s things that cannot be.") % {"most": MAX_ERRORS},
        _("Reload the page."),
        code="too_many_errors",
    )


def _no_database() -> ConsoleError:
    return Unavailable(
        _("The database does not answer, so the topic was not opened."), _("Try again in a moment."), code="no_database"
    )
