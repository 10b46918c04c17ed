"""One host by SSH: its key, a login, and the joining command run there as root. No Django, no database.

asyncssh is imported where it is used: it takes 15 MB, and only a process that works on a list needs it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import hashlib
import re
import shlex
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncssh

CONNECT_S = 15.0
LOGIN_S = 30.0
ASK_S = 60.0  # for id and sudo, which may wait for a name server that is away
SCRIPT_S = 1200.0  # the script fetches a Python and the agent, and waits a minute to be seen
# The kind of key that is asked for, the first that a host has.
KINDS = (
    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "rsa-sha2-512", "rsa-sha2-256",
)  # fmt: skip
MOST_HEARD = 4096  # characters of an answer to a question
ATTEMPTS = 3  # of a login, where sshd drops some because many come at once
BEGIN = "ascend-console-begin"


class Failure(Exception):
    """Why a host cannot go on. `code` has its words in deployments/join_many_texts.py; `detail` came from there."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code} {detail}")
        self.code = code
        self.detail = clean(detail)[:600]


class BadKey(ValueError):
    """A private key that cannot be used; `code` says why: passphrase or format."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Credentials:
    """How to log in, and the password for sudo ('': the login's own). Never shown: none of it is in the repr."""

    password: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)
    passphrase: str = field(default="", repr=False)
    sudo_password: str = field(default="", repr=False)

    @property
    def for_sudo(self) -> str:
        return self.sudo_password or self.password


@dataclass(frozen=True)
class Target:
    """Where to log in; `key` is the only host key that is accepted, as `ssh-ed25519 AAAA…`."""

    host: str
    port: int
    user: str
    key: str = ""


@dataclass(frozen=True)
class Errand:
    """What is run there: a shell command; with `prefix` the agent goes below that folder."""

    command: str
    prefix: str = ""
    language: str = "C"


@dataclass(frozen=True)
class Rights:
    """The words before a command that is to run as root, and what the first of them reads by stdin."""

    before: tuple[str, ...] = ()
    password: str = field(default="", repr=False)


def clean(text: str) -> str:
    """What a server says, without control characters."""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text.replace("\r\n", "\n"))


# ---------- keys ----------


def load_key(text: str, passphrase: str) -> Any:
    """The private key that was given. Raises BadKey."""
    import asyncssh

    try:
        return asyncssh.import_private_key(text, passphrase or None)
    except asyncssh.KeyEncryptionError as error:
        raise BadKey("passphrase") from error
    except (asyncssh.KeyImportError, ValueError) as error:
        raise BadKey("passphrase" if "passphrase" in str(error).lower() else "format") from error


def fingerprint(key: str) -> str:
    """SHA256:…, as ssh-keygen shows it; '' for what is no key."""
    try:
        digest = hashlib.sha256(base64.b64decode(key.split()[1], validate=True)).digest()
    except (IndexError, ValueError):
        return ""
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def kind(key: str) -> str:
    """ssh-ed25519 of a key's line."""
    return key.split(" ", 1)[0]


async def read_host_key(host: str, port: int, known: str = "") -> str:
    """The key that the host shows: of the kind of the `known` one where it still has that. Raises Failure."""
    import asyncssh

    wished = [name.decode() for name in asyncssh.import_public_key(known).sig_algorithms] if known else KINDS
    try:
        return await _shown_key(host, port, wished)
    except Failure as failure:
        if failure.code not in ("no_algorithm", "lost") or not known:  # sshd hangs up on a kind that it has not
            raise
    return await _shown_key(host, port, KINDS)


async def _shown_key(host: str, port: int, algorithms: Any) -> str:
    import asyncssh

    try:
        async with asyncio.timeout(CONNECT_S):
            found = await asyncssh.get_server_host_key(host, port, server_host_key_algs=algorithms, config=None)
    except Exception as error:
        raise failure_of(error) from error
    if found is None:
        raise Failure("not_ssh")
    return " ".join(found.export_public_key().decode().split()[:2])


# ---------- what went wrong ----------

NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.EACCES)


def failure_of(error: BaseException) -> Failure:
    """What an error of asyncssh or of the network means. Other errors are raised again: they are ours."""
    import asyncssh

    if isinstance(error, Failure):
        return error
    if isinstance(error, socket.gaierror):
        return Failure("no_name", str(error))
    if isinstance(error, (TimeoutError, asyncssh.TimeoutError)):
        return Failure("timeout")
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return Failure("key_changed")
    if isinstance(error, asyncssh.PermissionDenied):
        return Failure("auth", error.reason)
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return Failure("no_algorithm", error.reason)
    if isinstance(error, asyncssh.ConnectionLost):
        return Failure("lost", error.reason)
    if isinstance(error, asyncssh.ChannelOpenError):
        return Failure("no_command", error.reason)
    if isinstance(error, asyncssh.DisconnectError):
        return Failure("not_ssh" if isinstance(error, asyncssh.ProtocolError) else "lost", error.reason)
    if isinstance(error, OSError):
        return Failure(_of_network(error), str(error))
    raise error


def _of_network(error: OSError) -> str:
    """asyncio joins the errors of several addresses into one without a number; its text names them."""
    text = str(error)
    if error.errno == errno.ECONNREFUSED or f"Errno {errno.ECONNREFUSED}]" in text:
        return "refused"
    if error.errno in NO_ROUTE or any(f"Errno {number}]" in text for number in NO_ROUTE):
        return "no_route"
    if error.errno in (errno.ECONNRESET, errno.EPIPE):
        return "lost"
    return "timeout" if error.errno == errno.ETIMEDOUT else "no_route"


# ---------- a login ----------


async def connect(target: Target, credentials: Credentials) -> asyncssh.SSHClientConnection:
    """Logged in. Raises Failure; a connection that sshd drops because many come at once is tried again."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return await _connect(target, credentials)
        except Failure as failure:
            if failure.code in ("lost", "no_algorithm") and await _shows_another(target):
                raise Failure("key_changed") from failure
            if failure.code != "lost" or attempt == ATTEMPTS:
                raise
        await asyncio.sleep(attempt)
    raise AssertionError("not reached")


async def _shows_another(target: Target) -> bool:
    """True where the host has no key of the confirmed kind any more: sshd only hangs up then."""
    try:
        return await _shown_key(target.host, target.port, KINDS) != " ".join(target.key.split()[:2])
    except Failure:
        return False


async def _connect(target: Target, credentials: Credentials) -> asyncssh.SSHClientConnection:
    import asyncssh

    keys = [load_key(credentials.private_key, credentials.passphrase)] if credentials.private_key else None
    try:
        return await asyncssh.connect(
            target.host, target.port, username=target.user,
            known_hosts=([asyncssh.import_public_key(target.key)], [], []),
            client_keys=keys, password=credentials.password or None, agent_path=None, config=None,
            connect_timeout=CONNECT_S, login_timeout=LOGIN_S, keepalive_interval=15, keepalive_count_max=4,
            gss_auth=False, gss_kex=False,
        )  # fmt: skip
    except Exception as error:
        raise failure_of(error) from error


# ---------- the errand ----------


async def rights(connection: asyncssh.SSHClientConnection, prefix: str, credentials: Credentials) -> Rights:
    """How a command gets root's rights there; below `prefix` it needs none. Raises Failure where they cannot be had."""
    if prefix:
        return Rights()
    who = await _ask(connection, "id -u")
    if re.fullmatch(r"\s*0\s*", who[1]):
        return Rights()
    code, words = await _ask(connection, "sudo -n -k true")
    if code == 0:
        return Rights(("sudo", "-n"))
    if code in (126, 127):
        raise Failure("no_sudo", words)
    if not credentials.for_sudo:
        raise Failure("sudo_password", words)
    password = credentials.for_sudo + "\n"
    # Asked alone first: a wrong one must not make sudo read the command as the next try.
    code, words = await _ask(connection, "sudo -k -S -p '' true", password)
    if code != 0:
        raise Failure("no_sudo", words)
    return Rights(("sudo", "-k", "-S", "-p", ""), password)


async def run(
    connection: asyncssh.SSHClientConnection, errand: Errand, given: Rights, hear: Callable[[str], None]
) -> None:
    """Run the command there; `hear` gets its output piece by piece. Raises Failure where it does not end with 0.

    Password and command go in by stdin, so no process list and no log of sudo shows them. A password that sudo did not
    ask for is read by nobody: all up to the mark is thrown away.
    """
    names = [f"LANG={errand.language}", *([f"PREFIX={errand.prefix}"] if errand.prefix else [])]
    waiting = f'while IFS= read -r line; do [ "$line" = {BEGIN} ] && exec sh -s; done; exit 97'
    words = [*given.before, "env", *names, "sh", "-c", waiting]
    fed = f"{given.password}{BEGIN}\n{errand.command}\n"
    code = await _run(connection, shlex.join(words), fed, hear, SCRIPT_S)
    if code != 0:
        raise Failure("script", "" if code is None else f"exit code {code}")


async def _ask(connection: asyncssh.SSHClientConnection, command: str, fed: str = "") -> tuple[int | None, str]:
    heard = ""

    def hear(text: str) -> None:
        nonlocal heard
        heard = (heard + text)[-MOST_HEARD:]  # a host may speak without end

    code = await _run(connection, command, fed, hear, ASK_S)
    return code, heard[-600:].strip()


async def _run(
    connection: asyncssh.SSHClientConnection, command: str, fed: str, hear: Callable[[str], None], limit_s: float
) -> int | None:
    """The exit code, None where a signal ended it. Raises Failure."""
    import asyncssh

    try:
        async with asyncio.timeout(limit_s):
            process = await connection.create_process(
                command, stderr=asyncssh.STDOUT, encoding="utf-8", errors="replace"
            )
            with contextlib.suppress(BrokenPipeError):  # it has ended already, as `id` may; its exit code tells
                if fed:
                    process.stdin.write(fed)
                process.stdin.write_eof()
            while piece := await process.stdout.read(8192):
                hear(clean(piece))
            await process.wait_closed()
    except asyncio.CancelledError:
        connection.abort()  # to close it in good order would wait for the command's end
        raise
    except TimeoutError as error:
        connection.abort()
        raise Failure("late") from error
    except Exception as error:
        raise failure_of(error) from error
    if process.exit_status is None and process.exit_signal is None:
        raise Failure("lost")  # the connection broke before the host could say how it ended
    return None if process.exit_status is None or process.exit_status < 0 else process.exit_status
