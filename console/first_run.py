"""What a start needs before its processes do: folders, database, first administrator. Each refusal is one sentence."""

import fcntl
import json
import os
import secrets
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis
from django.core.management import call_command
from django.db import DatabaseError, connection

from console.environment import BadSetting
from console.errors import brief
from console.models import Role, User


def check_folder(var: Path) -> None:
    """Raises BadSetting where `var` cannot be written."""
    try:
        (var / "log").mkdir(parents=True, exist_ok=True)
        probe = var / ".writable"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise BadSetting(
            f"VAR_DIR={var} cannot be written ({error.strerror}). Set it to a folder of this user."
        ) from error
    keep_others_out(var)


def keep_others_out(var: Path) -> None:
    """Its database holds the keys and passwords of every server. A group that the site lets in stays.

    Raises BadSetting where every user of this machine may look into it, and that cannot be changed.
    """
    if not var.stat().st_mode & 0o007:
        return
    try:
        var.chmod(0o700)
    except OSError as error:
        raise BadSetting(
            f"VAR_DIR={var} is open to every user of this machine, and holds the keys of all servers. Let its owner "
            f"run: chmod o-rwx {var}"
        ) from error


def take_lock(path: Path, address: str) -> int:
    """The descriptor that holds the lock for life. Raises BadSetting naming who holds it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held = read_lock(path)
        raise BadSetting(
            f"The console of {path.parent} runs already (process {held.get('pid', '?')}, {held.get('address', '?')}). "
            f"End it with 'make down', or start another with its own VAR_DIR and PORT."
        ) from error
    os.ftruncate(lock, 0)
    os.write(lock, json.dumps({"pid": os.getpid(), "address": address}).encode())
    return lock


def read_lock(path: Path) -> dict[str, Any]:
    """{"pid", "address"} as the last holder wrote it; empty where there is none."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


def check_address(bind: str, port: int) -> None:
    """Raises BadSetting where the web server could not listen on `bind`:`port`."""
    try:
        family = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0][0]
    except OSError as error:
        raise BadSetting(
            f"BIND={bind!r} is no address. Set it to one of this machine, 127.0.0.1 or 0.0.0.0."
        ) from error
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except PermissionError as error:
            raise BadSetting(f"PORT={port} is not for this user. Choose one above 1023: make up PORT=8000") from error
        except OSError as error:
            raise BadSetting(_taken(bind, port, error)) from error


def _taken(bind: str, port: int, error: OSError) -> str:
    if "in use" in (error.strerror or ""):
        return (
            f"PORT={port} is in use by another program on {bind}. Stop it, or choose another: make up PORT={port + 1}"
        )
    return f"BIND={bind} is not an address of this machine ({error.strerror}). Set it to one of its own, or to 0.0.0.0."


def check_redis(url: str) -> None:
    """Raises BadSetting where the site's own Redis does not answer or does not let the console manage users."""
    place = urlsplit(url).netloc.rpartition("@")[2] or urlsplit(url).path
    try:
        client = redis.Redis.from_url(url, socket_timeout=3, socket_connect_timeout=3, retry=None)
        client.ping()
        client.acl_getuser("default")
    except redis.AuthenticationError as error:
        raise BadSetting(
            f"REDIS_URL: {place} refuses the user or password. Correct them: redis://USER:PASSWORD@…"
        ) from error
    except redis.exceptions.NoPermissionError as error:
        raise BadSetting(
            f"REDIS_URL: its user may not manage users on {place}. Give it the right: +@all ~* &*"
        ) from error
    except redis.ResponseError as error:
        raise BadSetting(f"REDIS_URL: {place} is no Redis ≥ 6.2 or Valkey ({error}). Name one that is.") from error
    except (redis.RedisError, OSError, ValueError) as error:
        raise BadSetting(
            f"REDIS_URL: no Redis answers at {place} ({brief(error)}). Start it, or correct the address."
        ) from error


def migrate() -> None:
    """Bring the database up to date. Raises BadSetting where there is none behind DATABASE_URL."""
    settings = connection.settings_dict
    place = settings["NAME"] if connection.vendor == "sqlite" else f"{settings['HOST']}:{settings['PORT'] or 5432}"
    try:
        connection.ensure_connection()
        call_command("migrate", verbosity=0, interactive=False)
    except DatabaseError as error:
        raise BadSetting(
            f"DATABASE_URL: the database at {place} cannot be used ({brief(error)}). Start it, or correct the address."
        ) from error


def first_administrator() -> tuple[str, str] | None:
    """Make `admin` with a random password when there is no user at all; its name and password, else None."""
    if User.objects.exists():
        return None
    password = secrets.token_urlsafe(12)
    User.objects.create_user("admin", password=password, role=Role.ADMINISTRATOR)
    return "admin", password
