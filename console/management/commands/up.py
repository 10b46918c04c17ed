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

from console import addresses, assets, first_run, valkey
from console.environment import BadSetting
from console.parts import Part, Plan
from deployments.models import Server
from deployments.services import enrol


class Command(BaseCommand):
    help = "Start every part of the console on this machine; Ctrl-C or SIGTERM ends them all."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        var = Path(settings.VAR_DIR)
        address = f"http://{shown_host(settings.BIND)}:{settings.PORT}/"
        first_run.check_folder(var)
        lock = first_run.take_lock(var / "up.lock", address)
        first_run.check_address(settings.BIND, settings.PORT)
        own = own_redis()
        first_run.migrate()
        assets.collect(settings.COLLECTED)
        first = first_run.first_administrator()
        self._welcome(address, first)
        plan = make_plan(var, address, own)
        connections.close_all()
        become(plan, var / "run" / "plan.json", lock)

    def _welcome(self, address: str, first: tuple[str, str] | None) -> None:
        self.stdout.write(f"Ascend Console {settings.VERSION}  {address}")
        if first:
            self.stdout.write(f"管理员 Administrator: {first[0]}   密码 password: {first[1]}   (只显示一次 shown once)")
        self.stdout.flush()


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
    if not (os.environ.get("REDIS_URL", "").strip() or os.environ.get("REDIS_URL_FILE", "").strip()):
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
        parts.append(Part("valkey", bundled.argv, listens=("127.0.0.1", bundled.port)))
    enrol.write_configs(local, demo, url)
    return Plan(address, str(var), parts + console_parts(var, demo))


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


def web_command(python: str) -> list[str]:
    # Behind a proxy the site names it in FORWARDED_ALLOW_IPS; else nobody may say who the client is.
    proxied = "--proxy-headers" if os.environ.get("FORWARDED_ALLOW_IPS") else "--no-proxy-headers"
    return [
        python, "-m", "uvicorn", "console.asgi:application", "--host", settings.BIND, "--port", str(settings.PORT),
        "--ws", "websockets-sansio", "--ws-max-size", "65536", "--no-access-log", "--no-server-header", proxied,
        "--timeout-graceful-shutdown", "3", "--log-level", "info",
    ]  # fmt: skip


def become(plan: Plan, path: Path, lock: int) -> None:
    """Turn this process into the supervisor: it needs a tenth of the memory, and the lock goes with it."""
    valkey.write_private(path, plan.to_json())
    os.set_inheritable(lock, True)
    os.chdir(settings.BASE_DIR)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "console.parts", str(path)])
