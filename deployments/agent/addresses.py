"""Where the console's Redis is: a list of addresses, tried in order, and how the console changes it.

The list of the config is what joining wrote; a newer one that the console sent is a layer over it. Addresses stand
there without user and password, which come from the config and its newer keys.

The link finds out which address works and leaves it in `<state>/address`; the worker goes where the link is.
"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from deployments.agent import credentials, layers, spool
from deployments.steps import Text

if TYPE_CHECKING:
    from deployments.agent.config import Config


@dataclasses.dataclass(frozen=True)
class Kept:
    """`redis` in the order wished, `old` what stood there before, until the new ones are confirmed."""

    over: str
    redis: tuple[str, ...]
    old: tuple[str, ...] = ()
    console: str = ""
    pin: str = ""


def read(state: Path, over: str) -> Kept | None:
    """The list that the console sent since the config marked `over` was written."""
    kept = layers.read(state / layers.ADDRESSES, _kept, "the config's own address is used")
    return kept if kept and kept.over == over and kept.redis else None


def write(state: Path, kept: Kept) -> None:
    layers.write(state / layers.ADDRESSES, dataclasses.asdict(kept))


def _kept(data: dict[str, Any]) -> Kept:
    over, console, pin = (str(data[name]) for name in ("over", "console", "pin"))
    return Kept(over, tuple(map(str, data["redis"])), tuple(map(str, data["old"])), console, pin)


def layered(config: "Config") -> "Config":
    """The config with the addresses that the console sent; `redis_url` is the one in use, else the first."""
    own = (credentials.without(config.redis_url), *config.redis_more)
    kept = read(config.state_dir, config.origin)
    known = (*kept.redis, *kept.old) if kept else own
    config = dataclasses.replace(config, addresses=tuple(dict.fromkeys(known)))
    if kept:
        config = dataclasses.replace(config, console=kept.console or config.console, pin=kept.pin or config.pin)
    used = present(config)
    return config if used == own[0] else dataclasses.replace(config, redis_url=with_user(config, used))


def present(config: "Config") -> str:
    """The address that the link goes by."""
    try:
        noted = (config.state_dir / layers.PRESENT).read_text()[:1000].strip()
    except (OSError, ValueError):
        noted = ""
    return noted if noted in config.addresses else config.addresses[0]


def note(state: Path, address: str) -> None:
    spool.write_whole(state / layers.PRESENT, address.encode())


def with_user(config: "Config", address: str) -> str:
    """The address with the user and password of the config."""
    parts, own = urlsplit(address), urlsplit(config.redis_url)
    if own.username is None and own.password is None:
        return address
    user, password = (quote(unquote(word or ""), safe="") for word in (own.username, own.password))
    return parts._replace(netloc=f"{user}:{password}@{parts.netloc}").geturl()


def problem(address: Any) -> Text | None:
    """Why this is no address of a Redis, None where it is one."""
    if not isinstance(address, str) or len(address) > 300 or not address.isascii() or not address.isprintable():
        return Text("只能是可见的 ASCII 字符", "only visible ASCII characters may stand in it")
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return Text("主机或端口不对", "its host or port is wrong")
    if parts.scheme not in ("redis", "rediss") or not parts.hostname or " " in address:
        return Text("请写成 rediss://主机:端口/0", "write rediss://host:port/0")
    if "@" in parts.netloc:
        return Text("不要写用户名与密码，各服务器自有", "leave user and password out, each server has its own")
    if port is None or parts.path not in ("", "/", "/0") or parts.query or parts.fragment:
        return Text("请写明主机与端口，只能用 0 号库", "write host and port, and no other database than 0")
    return None
