"""What live pages receive: topics, and messages on their way from whoever knows something to the hub.

A message is published on the Redis channel `live:<topic>` as JSON {"seq", "type", "data"}, keys in this order: the hub
puts the topic in front, sends the same text to every socket, and reads a log's numbers from its first bytes.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from console import streams
from console.message import Message, encode
from console.redis import client

if TYPE_CHECKING:
    from console.models import User

MAX_NAME = 100


class Told(NamedTuple):
    """One message that a topic itself tells a subscriber."""

    type: str
    data: Any
    seq: int | None = None


class Present(NamedTuple):
    """What a new subscriber gets first; `attempt` is the newest numbered stream of the topic, if it has any."""

    messages: Sequence[Told] = ()
    attempt: str | None = None


def _nothing(match: re.Match[str]) -> Present:
    return Present()


@dataclass(frozen=True)
class Topic:
    """One kind of topic; each app lists its own in `topics.py` as TOPICS.

    `pattern` matches the whole name. `may(user, match)` is asked at subscribe and again later, and reads no
    database. `present(match)` may read it; it raises NotFound where there is no such thing.

    A topic that says what is has `conflate(messages)`: what a slow socket gets instead of the messages it was too
    slow for. A topic whose messages are numbered lines has `history(match, attempt, after)` instead: the lines that
    follow number `after`, as messages whose `seq` is the last number they cover; empty when there are none.
    """

    pattern: str
    may: "Callable[[User, re.Match[str]], bool]"
    present: Callable[[re.Match[str]], Present] = _nothing
    conflate: Callable[[list[Message]], list[Message]] | None = None
    history: Callable[[re.Match[str], str, int], Sequence[Told]] | None = None


def viewer(user: "User", match: re.Match[str]) -> bool:
    """Everybody who may sign in."""
    return user.may("viewer")


def topics() -> list[Topic]:
    """The topics of all installed apps, in the order of INSTALLED_APPS."""
    found: list[Topic] = []
    for app in apps.get_app_configs():
        if module_has_submodule(app.module, "topics"):
            found += getattr(import_module(f"{app.name}.topics"), "TOPICS", [])
    return found


def group_name(topic: str) -> str:
    """The topic as a channel-layer group, which allows no colon."""
    return topic.replace(":", ".")


def message(topic: str, type: str, data: Any, seq: int | None = None) -> tuple[str, bytes]:
    """(channel, payload), as PUBLISH takes them: `pipe.publish(*live.message("job:42", "log", lines, seq=1800))`."""
    return streams.live(topic), encode(type, data, seq)


def publish(topic: str, type: str, data: Any, seq: int | None = None) -> None:
    """Tell every page that reads `topic`. Raises redis.RedisError where Redis is away."""
    client().publish(*message(topic, type, data, seq))
