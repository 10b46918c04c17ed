"""Settings read from the environment; a bad value stops the start in one sentence."""

import os
import re
import secrets
import time
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
LOGIN_WORD = re.compile(r"""[^\s"'\\#\x00-\x20\x7f-\U0010ffff]{1,400}""")


class BadSetting(SystemExit):
    """A value nobody can start with. Its text is the sentence that the operator reads."""


def text(name: str, default: str) -> str:
    return os.environ.get(name, "").strip() or default


def number(name: str, default: int, *, least: int, most: int) -> int:
    raw = os.environ.get(name, "").strip()
    if not raw:
        return default
    if not raw.isascii() or not raw.isdigit() or not least <= int(raw) <= most:
        raise BadSetting(
            f"{name}={raw!r} is not a whole number from {least} to {most}. Set it to one, or leave it out."
        )
    return int(raw)


def ports(name: str, default: str, *, apart_from: tuple[tuple[int, int], ...] = ()) -> tuple[int, int]:
    """The first and last port of a range such as 18000-18099, which may share none with those it is `apart_from`."""
    raw = text(name, default)
    first, dash, last = raw.partition("-")
    if not (dash and first.isascii() and last.isascii() and first.isdigit() and last.isdigit()):
        raise BadSetting(f"{name}={raw!r} is no range of ports. Set it to one such as {default}, or leave it out.")
    found = int(first), int(last)
    if not 1024 <= found[0] <= found[1] <= 65535:
        raise BadSetting(f"{name}={raw!r} is no range from 1024 to 65535, the lower port first. Mend it.")
    for other in apart_from:
        if found[0] <= other[1] and other[0] <= found[1]:
            raise BadSetting(f"{name}={raw!r} shares ports with the range {other[0]}-{other[1]}. Set them apart.")
    return found


def codes(name: str, default: list[str]) -> frozenset[str]:
    """Codes of faults as npu-smi prints them, 8 hexadecimal digits, with commas between; `none` for none."""
    raw = os.environ.get(name, "").strip()
    if raw.lower() == "none":
        return frozenset()
    found = [word.upper().removeprefix("0X") for word in words(name, default)]
    for word in found:
        if not re.fullmatch(r"[0-9A-F]{8}", word):
            raise BadSetting(
                f"{name}: {word!r} is no code of a fault. Name 8 hexadecimal digits each, with commas, or none."
            )
    return frozenset(found)


def share(name: str, default: float) -> float:
    """A part of a whole, above 0 and at most 1."""
    raw = os.environ.get(name, "").strip()
    if not raw:
        return default
    try:
        found = float(raw)
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise BadSetting(f"{name}={raw!r} is not a number above 0 and at most 1. Set it to one, or leave it out.")
    return found


def flag(name: str, default: bool) -> bool:
    raw = os.environ.get(name, "").strip().lower()
    if raw in ("", "0", "1", "true", "false"):
        return default if not raw else raw in ("1", "true")
    raise BadSetting(f"{name}={raw!r} is neither 1 nor 0. Set it to one of them, or leave it out.")


def flag_if_given(name: str) -> bool | None:
    """True or False as the site says; None where it says nothing."""
    return flag(name, False) if os.environ.get(name, "").strip() else None


def choice(name: str, default: str, accepted: list[str]) -> str:
    raw = text(name, default)
    # LANGUAGE is also a variable of gettext (`en_GB:en`): what we do not know there is not ours.
    return raw if raw in accepted else default


def one_of(name: str, default: str, accepted: list[str]) -> str:
    raw = text(name, default)
    if raw.upper() not in accepted:
        raise BadSetting(f"{name}={raw!r} is not known. Accepted: {', '.join(accepted)}.")
    return raw.upper()


def time_zone(name: str, default: str) -> str:
    raw = text(name, default)
    try:
        zoneinfo.ZoneInfo(raw)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise BadSetting(
            f"{name}={raw!r} is no time zone. Set it to a name such as Asia/Shanghai, Europe/Berlin or UTC."
        ) from error
    return raw


def words(name: str, default: list[str]) -> list[str]:
    raw = os.environ.get(name, "").strip()
    return [word.strip() for word in raw.split(",") if word.strip()] if raw else default


def addresses(name: str, *, most: int) -> str:
    """At most so many http(s) addresses with blanks between, none with a password; '' where nothing is said."""
    found = text(name, "").split()
    for one in found:
        parts = urlsplit(one)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
            raise BadSetting(
                f"{name} is no http(s) address without a password, such as https://mirror.example/simple. "
                "Set it to one, or leave it out."
            )
    if len(found) > most:
        raise BadSetting(f"{name} names {len(found)} addresses. Name at most {most}.")
    return " ".join(found)


def from_file(name: str) -> str:
    """The content of the file that `<NAME>_FILE` names, or ''."""
    path = os.environ.get(f"{name}_FILE", "").strip()
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise BadSetting(
            f"{name}_FILE={path!r} cannot be read ({error.strerror}). Name a file this user may read."
        ) from error


def logins(name: str, *, most: int) -> tuple[tuple[str, str, str], ...]:
    """(host, user, password) of each `machine HOST login USER password WORD`, as netrc has it. No sentence of ours
    repeats any of it."""
    words = (os.environ.get(name, "").strip() or from_file(name)).split()
    found: list[tuple[str, str, str]] = []
    while words:
        row, words = words[:6], words[6:]
        if len(row) < 6 or row[::2] != ["machine", "login", "password"] or len(found) == most:
            raise BadSetting(
                f"{name}: entry {len(found) + 1} is not of the form “machine HOST login USER password WORD”, none with "
                f"blanks in it, {most} at most. Mend it, or leave it out."
            )
        host, user, password = row[1::2]
        if not HOST.fullmatch(host):
            raise BadSetting(f"{name}: entry {len(found) + 1} names no host. Name it without http:// and port.")
        if not all(LOGIN_WORD.fullmatch(word) for word in (user, password)):
            raise BadSetting(
                f"{name}: the user or password of entry {len(found) + 1} holds a quote, a backslash, # or what is not "
                "ASCII, which pip cannot read from a file. Ask for another password."
            )
        found.append((host.lower(), user, password))
    return tuple(found)


def hub(name: str, default: str) -> str:
    """The address of a hub of models, without the last slash."""
    return (addresses(name, most=1) or default).rstrip("/")


def tokens(name: str, *, most: int) -> tuple[tuple[str, str], ...]:
    """(host, or origin with its scheme; token) of each pair `HOST TOKEN`. No sentence of ours repeats any of it."""
    words = (os.environ.get(name, "").strip() or from_file(name)).split()
    found = list(zip(words[::2], words[1::2], strict=False))
    for n, (where, token) in enumerate(found, 1):
        host = urlsplit(where if "://" in where else f"https://{where}")
        plain = host.scheme in ("http", "https") and not host.path and "@" not in host.netloc
        if not plain or not HOST.fullmatch(host.hostname or "") or not LOGIN_WORD.fullmatch(token):
            raise BadSetting(f"{name}: entry {n} is not of the form “HOST TOKEN”. Mend it, or leave it out.")
    if len(words) % 2 or len(found) > most:
        raise BadSetting(f"{name} is not of the form “HOST TOKEN …”, {most} at most. Mend it, or leave it out.")
    return tuple((where.lower(), token) for where, token in found)


def secret(name: str, kept_in: Path) -> str:
    """The secret from the environment or its file; else the one kept in `kept_in`, made at first use."""
    given = os.environ.get(name, "").strip() or from_file(name)
    if given:
        return given
    try:
        return kept_in.read_text().strip() or _read_when_written(kept_in)
    except FileNotFoundError:
        return _make(kept_in)
    except NotADirectoryError:
        return _make(kept_in)  # says what is wrong with the folder
    except OSError as error:
        raise BadSetting(
            f"{kept_in} cannot be read ({error.strerror}). Give it back to this user, or set {name}."
        ) from error


def _make(path: Path) -> str:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(
            f"{path.parent} cannot be made ({error.strerror}). Set VAR_DIR to a folder of this user."
        ) from error
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_when_written(path)  # another process was first
    except OSError as error:
        raise BadSetting(
            f"{path.parent} cannot be written ({error.strerror}). Set VAR_DIR to a folder of this user."
        ) from error
    made = secrets.token_urlsafe(48)
    with os.fdopen(handle, "w") as file:
        file.write(made)
    return made


def _read_when_written(path: Path) -> str:
    deadline = time.monotonic() + 2
    while not (made := path.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.01)
    if not made:
        raise BadSetting(f"{path} is empty. Remove it, so that a new one is made.")
    return made


def database(name: str, default: str, parse: Callable[..., Any]) -> Any:
    raw = os.environ.get(name, "").strip() or from_file(name) or default
    accepted = "postgres://USER:PASSWORD@HOST:5432/NAME or sqlite:////ABSOLUTE/PATH"
    try:
        parsed = parse(raw, conn_max_age=60)
    except (ValueError, KeyError) as error:
        raise BadSetting(f"{name} is not a database address. Accepted: {accepted}.") from error
    if not parsed.get("NAME") or not parsed.get("ENGINE", "").endswith(("sqlite3", "postgresql")):
        raise BadSetting(f"{name} is not a database address that the console knows. Accepted: {accepted}.")
    return parsed


def is_given(name: str) -> bool:
    return bool(os.environ.get(name, "").strip() or os.environ.get(f"{name}_FILE", "").strip())


def web_url(name: str) -> str:
    """An address as browsers take it, without the last slash; '' where none is given."""
    raw = text(name, "").rstrip("/")
    if not raw:
        return ""
    try:
        parts = urlsplit(raw)
        parts.port  # noqa: B018 - raises where the port is no number
    except ValueError as error:
        raise BadSetting(f"{name}={raw!r} is no address ({error}). Set it to https://HOST:PORT.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query or parts.username:
        raise BadSetting(f"{name}={raw!r} is no address of a site. Set it to https://HOST:PORT, with no path.")
    return raw


def _pem(name: str, path: str, mark: str, what: str) -> str:
    """What a file in PEM holds."""
    try:
        content = Path(path).read_text()
    except (OSError, ValueError) as error:
        raise BadSetting(f"{name}={path!r} cannot be read. Name a file this user may read.") from error
    if mark not in content:
        raise BadSetting(f"{name}={path!r} holds no {what}. Name a file in PEM, as the web server uses it.")
    return content


def certificate(name: str) -> str:
    """The path of a certificate (PEM) that can be read; '' where none is given."""
    path = text(name, "")
    if path:
        _pem(name, path, "-----BEGIN CERTIFICATE-----", "certificate")
    return path


def private_key(name: str, *, goes_with: str) -> str:
    """The path of a key that can be read; '' where none is given. One of the two alone is refused."""
    path, other = text(name, ""), text(goes_with, "")
    if bool(path) != bool(other):
        missing, given = (name, goes_with) if other else (goes_with, name)
        raise BadSetting(f"{given} is given, but {missing} is not. Give both, or neither.")
    if not path:
        return ""
    content = _pem(name, path, "PRIVATE KEY-----", "private key")
    if "ENCRYPTED" in content:
        raise BadSetting(
            f"{name}={path!r} has a passphrase, which nobody could enter. Name a copy without: openssl pkey"
        )
    return path


def program(name: str) -> str:
    """The path of a program that can be run; '' where none is given."""
    path = text(name, "")
    if path and not (Path(path).is_absolute() and os.access(path, os.X_OK) and Path(path).is_file()):
        raise BadSetting(f"{name}={path!r} is no program. Name its whole path, or leave it out.")
    return path


def with_authority(url: str, ca: str) -> str:
    """A rediss:// address that names the file of the authorities to trust, as redis-py reads it."""
    parts = urlsplit(url)
    if not ca or parts.scheme != "rediss":
        return url
    return parts._replace(query="&".join(filter(None, [parts.query, f"ssl_ca_certs={quote(ca, safe='/')}"]))).geturl()


def redis_url(name: str, kept_in: Path) -> str:
    """The address of Redis: from the environment, else what the last `make up` wrote."""
    raw = os.environ.get(name, "").strip() or from_file(name)
    if not raw:
        return kept_in.read_text().strip() if kept_in.exists() else "redis://127.0.0.1:6379/0"
    accepted = "redis://[USER:PASSWORD@]HOST:6379/0, rediss://…, unix:///path"
    try:
        parts = urlsplit(raw)
        parts.port  # noqa: B018 - raises where the port is no number
    except ValueError as error:
        raise BadSetting(f"{name} is not a Redis address ({error}). Accepted: {accepted}.") from error
    if parts.scheme not in ("redis", "rediss", "unix") or not (parts.hostname or parts.path):
        raise BadSetting(f"{name} is not a Redis address. Accepted: {accepted}.")
    if parts.path.strip("/") not in ("", "0") and parts.scheme != "unix":
        raise BadSetting(f"{name} names database {parts.path.strip('/')}, and servers see database 0 only. Use /0.")
    return raw
