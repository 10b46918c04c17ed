"""How pip gets at an index of the site: whom to trust for its certificate, and as whom to sign in.

Passwords never stand in a command, an address or pip's own settings: pip reads them from a file in the form of netrc,
and the authorities from another, both for this user alone and gone when pip has ended. Plain code.
"""

import base64
import http.client
import os
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from deployments.steps import python_module

SIGNED_IN = tuple(python_module("deployments.agent.indexed"))  # goes before the command that asks an index
AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu
    "/etc/pki/tls/certs/ca-bundle.crt",  # openEuler, Kylin
    "/etc/ssl/ca-bundle.pem",
)


class Login(NamedTuple):
    host: str
    user: str
    password: str


def host_of(address: str) -> str:
    return (urlsplit(address).hostname or "").lower()


def for_addresses(logins: Iterable[Login], addresses: Iterable[str]) -> tuple[Login, ...]:
    """Those of the hosts of these addresses."""
    hosts = {host_of(address) for address in addresses}
    return tuple(login for login in logins if login.host.lower() in hosts)


def netrc(logins: Iterable[Login]) -> str:
    return "".join(f"machine {one.host} login {one.user} password {one.password}\n" for one in logins)


def write(folder: Path, logins: tuple[Login, ...], ca: str) -> dict[str, str]:
    """Write what pip needs into `folder`, which is this user's alone; the variables that name it. Raises OSError."""
    env = {}
    if logins:
        env["NETRC"] = _private(folder / "netrc", netrc(logins))
    if ca:  # pip trusts one file alone, and other indexes have certificates of other authorities
        env["PIP_CERT"] = _private(folder / "authorities.pem", f"{_known(os.environ)}\n{ca.strip()}\n")
        env["REQUESTS_CA_BUNDLE"] = env["PIP_CERT"]  # where it is set, pip goes by it and not by its own option
    return env


def _private(path: Path, text: str) -> str:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return str(path)


def _known(env: Mapping[str, str]) -> str:
    """The authorities (PEM) that pip would trust without us, '' where none are found."""
    path = file_of_known(env)
    return Path(path).read_text(encoding="utf-8", errors="replace").strip() if path else ""


def file_of_known(env: Mapping[str, str]) -> str:
    """A Python that came from elsewhere may not know where this system keeps them."""
    every = (env.get("PIP_CERT"), ssl.get_default_verify_paths().cafile, *AUTHORITIES)
    return next((path for path in every if path and os.access(path, os.R_OK)), "")


def unheard(address: str, logins: Iterable[Login], authorities: str, timeout_s: float = 15.0) -> str:
    """Why an index cannot be used, '' where it answers: the page of one package is asked for and left unread.

    It gets twice `timeout_s` in all: one that sends a letter now and then would never run into it.
    """
    said: list[str] = []
    asked = threading.Thread(target=lambda: said.append(_unheard(address, logins, authorities, timeout_s)), daemon=True)
    asked.start()
    asked.join(2 * timeout_s)
    return said[0] if said else "it does not answer (it goes on sending a little, and comes to no end)"


def _unheard(address: str, logins: Iterable[Login], authorities: str, timeout_s: float) -> str:
    login = next(iter(for_addresses(logins, [address])), None)
    request = urllib.request.Request(f"{address.rstrip('/')}/pip/")
    if login:
        word = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {word}")
    try:
        context = ssl.create_default_context(cafile=authorities or file_of_known(os.environ) or None)
        with urllib.request.urlopen(request, timeout=timeout_s, context=context):
            return ""
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            who = f"as {login.user}" if login else "without a login"
            return f"it does not let us in {who} (HTTP {error.code})"
        return f"it answers HTTP {error.code}" if error.code >= 500 else ""
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = str(getattr(error, "reason", error))[:200]
        return f"it does not answer ({''.join(char if char.isprintable() else ' ' for char in reason)})"
