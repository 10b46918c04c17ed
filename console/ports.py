"""Every connection that this site's settings make, for the ticket that opens a firewall."""

import os
from typing import NamedTuple
from urllib.parse import urlsplit

from django.conf import settings

from console import addresses
from console.names import is_loopback
from deployments.steps import Text

HTTPS_PORT, HTTP_PORT, REDIS_PORT, POSTGRESQL_PORT, SSH_PORT = 443, 80, 6379, 5432, 22

HERE = Text("控制台本机", "this machine")
CONSOLE = Text("控制台", "console")
PROXY = Text("站点的反向代理", "the site's proxy")
BROWSERS = Text("浏览器、工单系统", "browsers, ticketing")
SERVERS = Text("被管服务器", "servers")


class Way(NamedTuple):
    """One connection over TCP; `tls` is None where the other side decides. `inside`: it never leaves this machine.

    `ssh`: it encrypts by itself, without TLS.
    """

    source: Text
    target: Text
    port: int
    tls: bool | None
    purpose: Text
    inside: bool
    ssh: bool = False


def ways() -> list[Way]:
    """Those that a firewall sees first, then those inside this machine."""
    found = [*_web(), *_redis(), *_database(), *_enrolment()]
    return sorted(found, key=lambda way: way.inside)


def _way(source: Text, host: str, port: int, tls: bool | None, purpose: Text) -> Way:
    inside = is_loopback(host)
    return Way(HERE if inside else source, Text(host, host), port, tls, purpose, inside)


def _web() -> list[Way]:
    parts = urlsplit(addresses.public_url())
    secure, host = parts.scheme == "https", parts.hostname or ""
    port = parts.port or (HTTPS_PORT if secure else HTTP_PORT)
    pages = Text("页面、REST 接口、长连接", "pages, REST, websockets")
    join = Text("服务器加入：命令、代理、Python", "joining: the command, the agent, a Python")
    found = [_way(BROWSERS, host, port, secure, pages)]
    if not is_loopback(host):
        found.append(_way(SERVERS, host, port, secure, join))
    if settings.REDIRECT_PORT:
        led = Text("HTTP，仅转到 HTTPS（可选）", "HTTP, only led to HTTPS (optional)")
        found.append(_way(BROWSERS, addresses.public_host(), settings.REDIRECT_PORT, False, led))
    if settings.PUBLIC_URL and (port != settings.PORT or host != settings.BIND):
        behind = Text("转发到控制台", "what the proxy passes on")
        source = Text(*[f"{text} {os.environ.get('FORWARDED_ALLOW_IPS', '')}".strip() for text in PROXY])
        found.append(_way(source, settings.BIND, settings.PORT, settings.HTTPS, behind))
    return found


def _redis() -> list[Way]:
    own = urlsplit(str(settings.REDIS_URL))
    agents, parts = (
        Text("代理：队列、日志、采样", "agents: queues, logs, samples"),
        urlsplit(addresses.public_redis_url()),
    )
    found = []
    if parts.scheme != "unix":
        host = parts.hostname or ""
        found.append(_way(SERVERS, host, parts.port or REDIS_PORT, parts.scheme == "rediss", agents))
    if settings.PUBLIC_REDIS_URL and addresses.has_front() and (port := addresses.front_port()):
        bind = addresses.redis_bind()
        if (bind, port) != (parts.hostname, parts.port):
            found.append(_way(PROXY, bind, port, True, Text("转发到控制台的 Redis", "what is passed on to Redis")))
    if own.scheme != "unix" and (own.hostname, own.port) != (parts.hostname, parts.port):
        purpose = Text("Redis：控制台与本机代理", "Redis: the console and the agent of its machine")
        found.append(_way(CONSOLE, own.hostname or "", own.port or REDIS_PORT, own.scheme == "rediss", purpose))
    elif own.scheme != "unix" and not is_loopback(own.hostname or ""):
        purpose = Text("控制台：队列、日志、采样", "the console: queues, logs, samples")
        found.append(_way(CONSOLE, own.hostname or "", own.port or REDIS_PORT, own.scheme == "rediss", purpose))
    return found


def _database() -> list[Way]:
    database = settings.DATABASES["default"]
    host = str(database.get("HOST") or "")
    if not host or host.startswith("/"):
        return []  # SQLite, or a socket of this machine
    mode = str(database.get("OPTIONS", {}).get("sslmode", ""))
    tls = False if mode == "disable" else True if mode in ("require", "verify-ca", "verify-full") else None
    return [_way(CONSOLE, host, int(database.get("PORT") or POSTGRESQL_PORT), tls, Text("数据库", "database"))]


def _enrolment() -> list[Way]:
    if is_loopback(urlsplit(addresses.public_url()).hostname or ""):
        return []
    purpose = Text("批量加入（SSH，可选）", "enrolling many by SSH, where that is used")
    return [Way(CONSOLE, SERVERS, SSH_PORT, None, purpose, False, ssh=True)]


HEAD = Text("来源,目标,端口,协议,TLS,用途", "source,target,port,protocol,TLS,purpose")
YES, NO, MAYBE = Text("是", "yes"), Text("否", "no"), Text("由对端决定", "as the other side offers")
ITSELF = Text("SSH 自身加密", "SSH encrypts itself")


def cells(way: Way, language: int) -> list[str]:
    """The row as HEAD names it, in Chinese (0) or English (1)."""
    tls = ITSELF if way.ssh else MAYBE if way.tls is None else YES if way.tls else NO
    texts = [way.source[language], way.target[language], str(way.port), "TCP", tls[language]]
    return [*texts, way.purpose[language]]


def as_json(way: Way) -> dict[str, object]:
    return {
        "source": way.source.en, "target": way.target.en, "port": way.port,
        "protocol": "tcp", "tls": way.tls,
        "purpose": {"zh": way.purpose.zh, "en": way.purpose.en}, "inside": way.inside,
    }  # fmt: skip
