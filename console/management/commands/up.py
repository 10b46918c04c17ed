"""`manage.py up`: prepare everything, then become the supervisor of the console's parts."""

import os
import socket
import sys
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connections

from console import addresses, assets, first_run, own_alerts, redis_front, tls, valkey
from console.environment import BadSetting
from console.parts import Part, Plan
from deployments.models import Server
from deployments.services import enrol, trust


class Command(BaseCommand):
    help = "Start every part of the console on this machine; Ctrl-C or SIGTERM ends them all."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        var = Path(settings.VAR_DIR)
        scheme = "https" if settings.HTTPS else "http"
        address = f"{scheme}://{shown_host(settings.BIND)}:{settings.PORT}/"
        first_run.check_folder(var)
        lock = first_run.take_lock(var / "up.lock", address)
        first_run.check_address(settings.BIND, settings.PORT)
        check_redirect()
        own = own_redis()
        check_ways()
        first_run.migrate()
        assets.collect(settings.COLLECTED)
        first = first_run.first_administrator()
        self._welcome(address, first)
        own_alerts.look()
        plan = make_plan(var, address, own)
        trust.tell(trust.behind())
        connections.close_all()
        become(plan, var / "run" / "plan.json", lock)

    def _welcome(self, address: str, first: tuple[str, str] | None) -> None:
        self.stdout.write(f"Ascend Console {settings.VERSION}  {address}")
        if first:
            self.stdout.write(f"管理员 Administrator: {first[0]}   密码 password: {first[1]}   (只显示一次 shown once)")
        for line in certificate_words():
            self.stdout.write(line)
        self.stdout.flush()


def check_redirect() -> None:
    """Raises BadSetting where REDIRECT_PORT could not lead to HTTPS."""
    if settings.REDIRECT_PORT and not settings.HTTPS:
        raise BadSetting("REDIRECT_PORT leads to HTTPS, which this console does not speak. Leave it out, or set TLS=1.")
    if settings.REDIRECT_PORT and not valkey.is_free(settings.BIND, settings.REDIRECT_PORT):
        raise BadSetting(
            f"REDIRECT_PORT={settings.REDIRECT_PORT} is used by another program, or not for this user. Choose another, "
            "or leave it out."
        )


def check_ways() -> None:
    """See that passwords travel by TLS, and that there is a certificate. Raises BadSetting."""
    plain_pages = not settings.HTTPS and not addresses.is_loopback(settings.BIND)
    if plain_pages and not settings.ALLOW_PLAINTEXT and not addresses.public_url().startswith("https://"):
        raise BadSetting(
            f"TLS=0 with BIND={settings.BIND}: passwords would travel in plain HTTP. Leave TLS out; name the proxy "
            "that has TLS (PUBLIC_URL=https://…); or do without in a network that you trust: ALLOW_PLAINTEXT=1"
        )
    if settings.HTTPS or addresses.has_front():
        if addresses.has_front():
            redis_front.find(settings.TLS_FRONT)
            kept = tls.folder() / "redis_port"
            redis_front.choose_port(addresses.redis_bind(), kept, settings.REDIS_TLS_PORT)
        tls.prepare(addresses.shown_names())


def certificate_words() -> list[str]:
    """What an operator should know of it at the start: its faults, and how browsers come to trust it."""
    found = tls.troubles(addresses.shown_names())
    faults = [f"{fault.what.zh}{fault.do.zh} {fault.what.en} {fault.do.en}" for fault in found]
    if faults or not (settings.HTTPS and tls.is_own()):
        return faults
    ca = tls.folder() / "ca.crt"
    return [f"浏览器信任此证书后不再警告 Browsers stop warning once they trust: {ca}"]


def shown_host(bind: str) -> str:
    """What a browser puts for the address that the web server listens on."""
    if bind in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{bind}]" if ":" in bind else bind


def loopback_of(bind: str) -> str:
    """Where this machine reaches what listens on `bind`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)


def own_redis() -> str:
    """The address of the site's own Redis, after it has answered; '' when the bundled Valkey is to be started."""
    if addresses.is_bundled():
        return ""
    first_run.check_redis(settings.REDIS_URL)
    return str(settings.REDIS_URL)


def make_plan(var: Path, address: str, own: str) -> Plan:
    """Enrol the servers, write what the parts read, and list the parts in the order they start."""
    local = enrol.enrol_local()
    demo = enrol.enlist_demo(settings.DEMO_SERVERS)
    enrol.tidy_demo(demo)
    parts = []
    if own:
        grant(own)
        url = own
    else:
        users = [valkey.user_line(name, rules) for name, rules in enrol.rights().items()]
        bundled = valkey.prepare(var, users, servers=len(demo) + 1, also_on=addresses.valkey_bind())
        url = bundled.url
        parts.append(Part("valkey", bundled.argv, listens=("127.0.0.1", bundled.port), greet=bundled.greet))
        if addresses.has_front():
            parts.append(front(bundled.port))
    enrol.write_configs(local, demo, url)
    return Plan(address, str(var), parts + console_parts(var, demo))


def front(valkey_port: int) -> Part:
    """What gives the bundled Valkey TLS."""
    bind, port, shown = addresses.redis_bind(), addresses.front_port(), tls.shown()
    assert shown is not None
    wanted = redis_front.Front(bind, port, valkey_port, shown.chain, shown.key)
    return Part(
        "redis-tls", redis_front.prepare(tls.folder(), wanted, settings.TLS_FRONT), listens=(loopback_of(bind), port)
    )


def grant(url: str) -> None:
    try:
        enrol.grant(redis.Redis.from_url(url, socket_timeout=30))
    except redis.RedisError as error:
        raise BadSetting(
            f"REDIS_URL: the servers' users could not be made ({error}). Give its user +@all ~* &*."
        ) from error


def console_parts(var: Path, demo: list[Server]) -> list[Part]:
    python, manage = sys.executable, str(settings.BASE_DIR / "manage.py")
    parts = [
        Part("web", web_command(python), listens=(loopback_of(settings.BIND), settings.PORT)),
        *redirect_part(python),
        Part("ingest", [python, manage, "ingest"]),
        Part("scheduler", [python, manage, "scheduler"]),
        Part("worker", [python, manage, "rqworker", "default", "--serializer", "json", "-v", "1"]),
        Part("agent", [python, "-m", "deployments.agent", "--config", str(var / "agent" / "config.json")]),
    ]
    if demo:
        config = str(var / "demo" / "config.json")
        # It ends by itself when an administrator removes the demo fleet.
        parts.append(Part("demo", [python, "-m", "deployments.demo", "--config", config], may_finish=True))
    return parts


def redirect_part(python: str) -> list[Part]:
    if not settings.REDIRECT_PORT:
        return []
    words = [settings.BIND, str(settings.REDIRECT_PORT), str(settings.PORT)]
    return [
        Part(
            "redirect",
            [python, "-m", "console.redirect", *words],
            listens=(loopback_of(settings.BIND), settings.REDIRECT_PORT),
        )
    ]


def web_command(python: str) -> list[str]:
    # Behind a proxy the site names it in FORWARDED_ALLOW_IPS; else nobody may say who the client is.
    proxied = "--proxy-headers" if os.environ.get("FORWARDED_ALLOW_IPS") else "--no-proxy-headers"
    return [
        python, "-m", "uvicorn", "console.asgi:application", "--host", settings.BIND, "--port", str(settings.PORT),
        "--ws", "websockets-sansio", "--ws-max-size", "65536", "--no-access-log", "--no-server-header", proxied,
        "--timeout-graceful-shutdown", "3", "--log-level", "info", *certificate_options(),
    ]  # fmt: skip


def certificate_options() -> list[str]:
    shown = tls.shown() if settings.HTTPS else None
    return ["--ssl-certfile", str(shown.chain), "--ssl-keyfile", str(shown.key)] if shown else []


def become(plan: Plan, path: Path, lock: int) -> None:
    """Turn this process into the supervisor: it needs a tenth of the memory, and the lock goes with it."""
    valkey.write_private(path, plan.to_json())
    os.set_inheritable(lock, True)
    os.chdir(settings.BASE_DIR)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "console.parts", str(path)])
