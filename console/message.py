"""One published message, read once and framed once for all the sockets of this process."""

import json
import math
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

# The head of a payload as `encode` writes it; ingest writes a log's numbers before its text.
HEAD = re.compile(
    rb'\{"seq":(?P<seq>null|\d{1,18}),"type":"(?P<type>\w{1,40})","data":'
    rb'(?:\{"attempt":"(?P<attempt>[\w-]{1,60})"(?:,"first":(?P<first>\d{1,18}),"n":(?P<n>\d{1,9}),)?)?'
)
LINES = ("log", "head")


def encode(type: str, data: Any, seq: int | None = None) -> bytes:
    """The payload of one message. A number that JSON has no word for (NaN) becomes null: unknown."""
    body = {"seq": seq, "type": type, "data": data}
    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(body), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")  # a lone surrogate has no UTF-8


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


class Message:
    """`seq`, `attempt`, `first` and `n` are None where the message has none. `size` is the payload's, in bytes."""

    def __init__(self, topic: str, payload: bytes) -> None:
        """Raises ValueError for a payload that `encode` did not make."""
        head = HEAD.match(payload)
        if head is None:
            raise ValueError(f"no message of ours: {payload[:80]!r}")
        self.topic = topic
        self.payload = payload
        self.size = len(payload)
        self.type = head["type"].decode()
        self.seq = None if head["seq"] == b"null" else int(head["seq"])
        self.attempt = head["attempt"].decode() if head["attempt"] and self.type in LINES else None
        self.first = int(head["first"]) if head["first"] else None
        self.n = int(head["n"]) if head["n"] else None
        # The ASGI event that sends it; one for all sockets.
        self.event = {"type": "websocket.send", "text": f'{{"topic":{json.dumps(topic)},{payload[1:].decode()}'}
        if self.type == "log" and self.n is None:
            self._read_slowly()
        self.last = (self.first or 1) + (self.n or 0) - 1  # the number of a log message's last line

    def _read_slowly(self) -> None:
        """A log message whose keys came in another order."""
        data = self.data
        try:
            self.attempt, self.first, self.n = str(data["attempt"]), int(data["first"]), int(data["n"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"a log message without its numbers: {self.payload[:80]!r}") from error

    @cached_property
    def data(self) -> Any:
        return json.loads(self.payload)["data"]

    def after(self, line: int) -> "Message":
        """This log message without its lines up to `line`."""
        first = line + 1
        text = self.data["text"].split("\n", first - (self.first or 1))[-1]
        data = {"attempt": self.attempt, "first": first, "n": self.last - line, "text": text}
        return made(self.topic, "log", data, self.last)


def made(topic: str, type: str, data: Any, seq: int | None = None) -> Message:
    """A message that the console itself sends, not one that came from Redis."""
    return Message(topic, encode(type, data, seq))


def newest(messages: list[Message]) -> list[Message]:
    """The newest message of each type."""
    return list({message.type: message for message in messages}.values())


def newest_of_each(name: str) -> Callable[[list[Message]], list[Message]]:
    """Conflation that keeps the newest message for each type and value of `data[name]`."""

    def conflate(messages: list[Message]) -> list[Message]:
        return list({(message.type, _field(message, name)): message for message in messages}.values())

    return conflate


def _field(message: Message, name: str) -> str:
    return str(message.data.get(name)) if isinstance(message.data, dict) else ""
