"""Where other machines reach this console and its Redis."""

import os
import socket
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from django.conf import settings

from console import tls
from console.names import is_loopback as is_loopback

FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")  # of a Redis address: they lie on this machine


def public_host(bind: str = "") -> str:
    """The name or address of BIND as others write it."""
    bind = bind or settings.BIND
    return socket.gethostname() if bind in ("0.0.0.0", "::") else bind


def public_url() -> str:
    """`https://console.example:8000`, with no slash at its end."""
    if settings.PUBLIC_URL:
        return str(settings.PUBLIC_URL)
    scheme = "https" if settings.HTTPS or settings.PUBLIC_CERTIFICATE else "http"
    return f"{scheme}://{bracketed(public_host())}:{settings.PORT}"


def public_redis_url() -> str:
    """The address of Redis as agents reach it; its user and password are of no use to them."""
    if settings.PUBLIC_REDIS_URL:
        return _for_others(str(settings.PUBLIC_REDIS_URL))
    parts = urlsplit(str(settings.REDIS_URL))
    if has_front() and (port := front_port()):
        return f"rediss://{bracketed(public_host(redis_bind()))}:{port}/0"
    if parts.scheme == "unix" or not is_loopback(parts.hostname or "") or not valkey_bind():
        return _for_others(str(settings.REDIS_URL))
    return parts._replace(netloc=f"{bracketed(public_host(redis_bind()))}:{parts.port or 6379}").geturl()


def _for_others(url: str) -> str:
    parts = urlsplit(url)
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name not in FILES]
    return parts._replace(query=urlencode(kept)).geturl()


def redis_authority() -> str:
    """What agents are to trust of Redis (PEM); "" where it has no TLS, or their own system knows who signed."""
    if not public_redis_url().startswith("rediss://"):
        return ""
    if settings.REDIS_CA:
        return Path(settings.REDIS_CA).read_text()
    found = tls.shown() if has_front() else None
    return found.ca if found else ""


def redis_bind() -> str:
    """Where servers that join reach the bundled Valkey, by itself or by its front."""
    return str(settings.REDIS_BIND or settings.BIND)


def is_bundled() -> bool:
    """Whether Redis is our own Valkey, rather than one of the site."""
    return not (os.environ.get("REDIS_URL", "").strip() or os.environ.get("REDIS_URL_FILE", "").strip())


def has_front() -> bool:
    """Whether the bundled Valkey, which has no TLS itself, is reached from elsewhere through a front that has."""
    return is_bundled() and not settings.ALLOW_PLAINTEXT and not is_loopback(redis_bind())


def front_port() -> int:
    """The port of that front as the last start chose it; 0 before the first."""
    kept = tls.folder() / "redis_port"
    text = kept.read_text().strip() if kept.exists() else ""
    return settings.REDIS_TLS_PORT or (int(text) if text.isdigit() else 0)


def valkey_bind() -> str:
    """Where the bundled Valkey listens beside 127.0.0.1: nowhere, unless ALLOW_PLAINTEXT says that it may."""
    return redis_bind() if settings.ALLOW_PLAINTEXT and not is_loopback(redis_bind()) else ""


def shown_names() -> list[str]:
    """The names and addresses by which others come to what shows our certificate."""
    urls = [public_url() if settings.HTTPS else "", public_redis_url() if has_front() else ""]
    found = [urlsplit(url).hostname or "" for url in urls if url]
    named = [name for name in settings.ALLOWED_HOSTS if settings.HTTPS and not name.startswith((".", "*", "["))]
    return list(dict.fromkeys(name for name in [*found, *named] if name))


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
