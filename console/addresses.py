"""Where other machines reach this console and its Redis."""

import ipaddress
import socket
from urllib.parse import urlsplit

from django.conf import settings

from console import tls


def is_loopback(host: str) -> bool:
    """True for a name or address that means the machine itself; `[::1]` counts as `::1`."""
    host = host.strip("[]").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def public_host() -> str:
    """The name or address of BIND as others write it."""
    return socket.gethostname() if settings.BIND in ("0.0.0.0", "::") else settings.BIND


def public_url() -> str:
    """`https://console.example:8000`, with no slash at its end."""
    if settings.PUBLIC_URL:
        return str(settings.PUBLIC_URL)
    scheme = "https" if tls.fingerprint() else "http"
    return f"{scheme}://{_bracketed(public_host())}:{settings.PORT}"


def public_redis_url() -> str:
    """The address of Redis as agents reach it; its user and password are of no use to them."""
    if settings.PUBLIC_REDIS_URL:
        return str(settings.PUBLIC_REDIS_URL)
    parts = urlsplit(str(settings.REDIS_URL))
    if parts.scheme == "unix" or not is_loopback(parts.hostname or "") or not valkey_bind():
        return str(settings.REDIS_URL)
    return parts._replace(netloc=f"{_bracketed(public_host())}:{parts.port or 6379}").geturl()


def valkey_bind() -> str:
    """Where the bundled Valkey listens beside 127.0.0.1: nowhere, unless ALLOW_PLAINTEXT says that it may."""
    return settings.BIND if settings.ALLOW_PLAINTEXT and not is_loopback(settings.BIND) else ""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
