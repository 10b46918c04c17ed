"""New keys that the console sent, a layer over those of the config.

While the console has not said that it goes by the new ones, the ones before are kept as well, and either is taken.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from deployments.agent import layers

if TYPE_CHECKING:
    from deployments.agent.config import Config


@dataclass(frozen=True)
class Pair:
    """What signs this server's payloads (hex), and the password of its own Redis user."""

    key: str
    password: str


@dataclass(frozen=True)
class Kept:
    """`over` marks the pair of the config that this stands over."""

    over: str
    now: Pair
    before: Pair | None = None


def mark(pair: Pair) -> str:
    return hashlib.sha256(f"{pair.key}\n{pair.password}".encode()).hexdigest()[:32]


def layered(config: "Config") -> "Config":
    """The config with the keys that the console sent since the file was written."""
    own = Pair(config.key, password_of(config.redis_url))
    kept = read(config.state_dir, own)
    config = replace(config, origin=mark(own))
    if kept is None:
        return config
    url = with_password(config.redis_url, kept.now.password)
    return replace(config, key=kept.now.key, redis_url=url, before=kept.before)


def read(state_dir: Path, config: Pair) -> Kept | None:
    """What was sent to this server since its config, with the pair `config`, was written."""
    kept = layers.read(state_dir / layers.CREDENTIALS, _kept, "the config's own keys are used")
    return kept if kept and kept.over == mark(config) else None


def write(state_dir: Path, kept: Kept) -> None:
    layers.write(state_dir / layers.CREDENTIALS, asdict(kept))


def _kept(data: dict[str, Any]) -> Kept:
    return Kept(str(data["over"]), _pair(data["now"]), _pair(data["before"]) if data["before"] else None)


def _pair(data: dict[str, str]) -> Pair:
    bytes.fromhex(data["key"])
    return Pair(data["key"], str(data["password"]))


def password_of(url: str) -> str:
    return unquote(urlsplit(url).password or "")


def with_password(url: str, password: str) -> str:
    """The address `url` with another password in it."""
    parts = urlsplit(url)
    user, place = quote(unquote(parts.username or ""), safe=""), parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{place}").geturl()


def without(url: str) -> str:
    """The address alone."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class Provider:
    """Credentials for each new connection to Redis, as its client asks for them: the new ones, and where the console
    may go by those before, the other pair at the next try."""

    def __init__(self, current: Callable[[], "Config"]) -> None:
        self.current = current
        self.tries = 0

    def get_credentials(self) -> tuple[str, ...]:
        """(user, password), each only where there is one."""
        config = self.current()
        passwords = [password_of(config.redis_url)]
        if config.before is not None:
            passwords.append(config.before.password)
            self.tries += 1
        words = (unquote(urlsplit(config.redis_url).username or ""), passwords[(self.tries - 1) % len(passwords)])
        return tuple(word for word in words if word)
