"""What one subscription still has to send to its socket: bounded, whatever the socket does.

Two kinds: Latest for topics that say what is, Numbered for topics that are lines of a log.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from console.message import Message, made, newest

KEPT = 16  # messages of one topic that a socket may be late before they are folded together
LINES_KEPT = 64  # log messages likewise, before they are forgotten and read from the database again
LINES_BYTES = 512 * 1024
TURN = 8  # messages of one subscription before it is another's turn
MAX_ATTEMPTS = 20  # numbered streams that one subscription keeps a place in

Send = Callable[[Message], Awaitable[None]]
Read = Callable[[str, int], Awaitable[list[Message]]]


class Outbox(Protocol):
    def offer(self, message: Message) -> None: ...

    def resume(self) -> None: ...

    def clear(self) -> None: ...

    async def flush(self, send: Send) -> bool: ...


class Latest:
    """Messages in order for a socket that keeps up; for a slow one what `conflate` makes of them."""

    def __init__(self, conflate: Callable[[list[Message]], list[Message]]) -> None:
        self.conflate = conflate
        self.queue: deque[Message] = deque()
        self.limit = KEPT

    def offer(self, message: Message) -> None:
        self.queue.append(message)
        if len(self.queue) > self.limit:
            self.queue = deque(self.conflate(list(self.queue)))
            # Many distinct things (servers of a fleet) may stand in line; folding again pays only when it has doubled.
            self.limit = max(KEPT, 2 * len(self.queue))

    def resume(self) -> None:
        """Nothing to read again: the page asks for the present state when it hears that the hub is live again."""

    def clear(self) -> None:
        self.queue.clear()

    async def flush(self, send: Send) -> bool:
        """Send a few messages; True when more are waiting."""
        for _ in range(TURN):
            if not self.queue:
                return False
            await send(self.queue.popleft())
        return bool(self.queue)


class Numbered:
    """Lines in order, without gap or double, from several numbered streams (the attempts of a job).

    `sent` holds the number of the last line sent for each attempt; `read(attempt, after)` reads what follows from the
    database. A hole between `sent` and the next message is read, and so is everything when the queue was too long.
    """

    def __init__(self, topic: str, read: Read, sent: dict[str, int]) -> None:
        self.topic = topic
        self.read = read
        self.sent = sent
        self.unread: dict[str, None] = dict.fromkeys(sent)  # a set in order
        self.queue: deque[Message] = deque()
        self.size = 0
        self.states = Latest(newest)
        self.hole: tuple[str, int] | None = None  # the hole that was read last

    def offer(self, message: Message) -> None:
        if message.type == "head":
            self._head(message)
        elif message.first is None:
            self.states.offer(message)
        else:
            self.queue.append(message)
            self.size += message.size
            if len(self.queue) > 1 and (len(self.queue) > LINES_KEPT or self.size > LINES_BYTES):
                self._forget()

    def resume(self) -> None:
        self.unread = dict.fromkeys(self.sent)

    def go_on(self, attempt: str, after: int) -> None:
        """Send what follows `after` too, unless this socket already had more of it."""
        self.sent[attempt] = max(after, self.sent.get(attempt, 0))
        self.unread[attempt] = None

    def clear(self) -> None:
        self.queue.clear()
        self.states.clear()
        self.unread.clear()
        self.sent.clear()
        self.size = 0

    async def flush(self, send: Send) -> bool:
        """Send a few messages, or read what is missing; True when more is waiting."""
        if self.states.queue:
            await self.states.flush(send)
        elif self.unread:
            await self._send_history(send)
        else:
            await self._send_queue(send)
        return bool(self.unread or self.queue or self.states.queue)

    def _head(self, message: Message) -> None:
        """The number of the last line there is. Without it nobody would miss a last message that was lost."""
        attempt = message.attempt or max(self.sent, key=_turn, default=None)
        if attempt is None or message.seq is None:
            return
        if message.seq > self._place(attempt, message.seq + 1) and not any(m.attempt == attempt for m in self.queue):
            self.unread[attempt] = None

    def _forget(self) -> None:
        for message in self.queue:
            self._place(message.attempt or "", message.first or 1)
            self.unread[message.attempt or ""] = None
        self.queue.clear()
        self.size = 0

    def _place(self, attempt: str, first: int) -> int:
        """The last line sent of an attempt. A newer one is read from its start, an older one is joined where it is."""
        if attempt not in self.sent:
            is_newer = all(_turn(attempt) > _turn(known) for known in self.sent)
            self.sent[attempt] = 0 if is_newer else first - 1
            while len(self.sent) > MAX_ATTEMPTS:
                self.unread.pop(oldest := min(self.sent, key=_turn), None)
                del self.sent[oldest]
        return self.sent.get(attempt, first - 1)

    async def _send_history(self, send: Send) -> None:
        attempt = next(iter(self.unread))
        del self.unread[attempt]  # before the wait: what is forgotten meanwhile is read once more
        if attempt not in self.sent:
            return
        try:
            found = await self.read(attempt, self.sent[attempt])
        except Exception:
            self.unread[attempt] = None
            raise
        for message in found:
            if attempt not in self.sent:
                return  # left meanwhile
            await self._send(message, attempt, message.seq or 0, send)

    async def _send_queue(self, send: Send) -> None:
        for _ in range(TURN):
            if self.unread or not self.queue:
                return
            message = self.queue[0]
            attempt = message.attempt or ""
            if message.first == self.sent.get(attempt, -1) + 1:  # nearly always; the rest is in the other method
                self.queue.popleft()
                self.size -= message.size
                self.sent[attempt] = message.last
                await send(message)
            else:
                await self._send_out_of_turn(message, attempt, message.first or 1, send)

    async def _send_out_of_turn(self, message: Message, attempt: str, first: int, send: Send) -> None:
        """The next message leaves a hole, or holds lines that were sent, or is of an attempt not seen yet."""
        sent = self._place(attempt, first)
        if first > sent + 1 and self.hole != (attempt, sent):
            self.hole = (attempt, sent)
            self.unread[attempt] = None
            return
        self.queue.popleft()
        self.size -= message.size
        if first > sent + 1:  # the database does not have it either: the page must know, and must not wait for it
            missing = {"attempt": attempt, "first": sent + 1, "total": first - 1}
            await self._send(made(self.topic, "behind", missing, first - 1), attempt, first - 1, send)
        if message.last > sent:
            rest = message if first > sent else message.after(sent)
            await self._send(rest, attempt, message.last, send)

    def _send(self, message: Message, attempt: str, last: int, send: Send) -> Awaitable[None]:
        self.sent[attempt] = max(last, self.sent.get(attempt, 0))
        return send(message)


def _turn(attempt: str) -> int:
    """Which attempt of its job it is: the 2 of `a42-2-0c1d2e3f`."""
    parts = attempt.split("-")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0
