"""New keys that the console sent, kept in `<state>/credentials.json` beside those of the config, which only root may
write where root has installed the agent. They stand over one config: one that joining has written anew ends them.

While the console has not said that it goes by the new ones, the ones before are kept as well, and either is taken.
"""

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from deployments.agent import spool

if TYPE_CHECKING:
    from deployments.agent.config import Config

log = logging.getLogger("credentials")

FILE = "credentials.json"
LAYERS = (FILE, "authorities.json", "addresses.json", "address")  # what stands over the config


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


def read(state_dir: Path, config: Pair) -> Kept | None:
    """What was sent to this server since its config, with the pair `config`, was written."""
    try:
        data = json.loads((state_dir / FILE).read_bytes())
        before = _pair(data["before"]) if data["before"] else None
        kept = Kept(str(data["over"]), _pair(data["now"]), before)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be read (%s); the config's own keys are used", state_dir / FILE, error)
        return None
    return kept if kept.over == mark(config) else None


def write(state_dir: Path, kept: Kept) -> None:
    """On the disk when it returns, whole; nobody but this user may read it."""
    spool.write_synced(state_dir / FILE, json.dumps(asdict(kept)).encode())


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


class Current:
    """`config` as its files have it now: keys may change while a process runs."""

    def __init__(self, config: "Config", load: Callable[[Path], "Config"]) -> None:
        self.config = config
        self.load = load
        self.seen = self._stamp()

    def __call__(self) -> "Config":
        stamp = self._stamp()
        if stamp != self.seen:
            try:
                self.config, self.seen = self.load(self.config.path), stamp
            except Exception as error:
                log.warning("the changed config is not used: %s", error)
        return self.config

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        return tuple(_stamp(path) for path in (self.config.path, *(self.config.state_dir / name for name in LAYERS)))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


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
