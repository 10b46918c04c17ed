"""Servers join and leave: this machine, the demo fleet, and their rights in Redis."""

import json
import logging
import re
import shutil
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.db import transaction
from django.utils.text import slugify

from console import audit, streams, valkey
from console.environment import secret
from console.models import User
from console.redis import client
from deployments.agent import indexed, spool
from deployments.agent.models import secrets as model_secrets
from deployments.agent.support import send as support_send
from deployments.demo import fleet
from deployments.models import Phase, Server
from deployments.services import demo_models, model_sources, package_sources, support_bundles

log = logging.getLogger(__name__)

INTERVAL_S = 1.0


def enrol_local() -> Server:
    """The row of the machine that the console runs on, made at the first start; its name stays what it was."""
    known = Server.objects.filter(is_local=True).first()
    if known:
        return known
    hostname = socket.gethostname()
    return Server.objects.create(name=_free_name(hostname), hostname=hostname, is_local=True)


def _free_name(hostname: str) -> str:
    wish = slugify(hostname.split(".")[0])[:50] or "this-machine"
    taken = set(Server.objects.filter(name__startswith=wish).values_list("name", flat=True))
    return next(name for name in (wish, *(f"{wish}-{n}" for n in range(2, len(taken) + 3))) if name not in taken)


def agent_config(server: Server, redis_url: str, state_dir: Path, redis_ca: str = "") -> dict[str, Any]:
    """What one agent is told; shape: deployments/agent/config.py. It holds this server's own secrets only."""
    return {
        **({"redis_ca": redis_ca} if redis_ca else {}),
        "server_id": server.pk,
        "name": server.name,
        "redis_url": valkey.url_for(redis_url, streams.user(server.pk), server.redis_password),
        "prefix": streams.prefix(server.pk),
        "key": server.key,
        "state_dir": str(state_dir),
        "interval_s": INTERVAL_S,
        "simulated": server.simulated,
        "env": {},
    }


def write_configs(local: Server, demo: list[Server], redis_url: str) -> None:
    """Write what the agent of this machine and the process of the demo fleet read; both hold secrets."""
    var = Path(settings.VAR_DIR)
    own = agent_config(local, redis_url, var / "agent")
    valkey.write_private(var / "agent" / "config.json", json.dumps(own, indent=1))
    valkey.write_private(var / "agent" / indexed.OWN, package_sources.own_file())
    valkey.write_private(var / "agent" / model_secrets.OWN, model_sources.own_file())
    support_bundles.inbox().mkdir(parents=True, exist_ok=True)
    valkey.write_private(var / "agent" / support_send.OWN, json.dumps({"inbox": str(support_bundles.inbox())}))
    valkey.write_private(var / "demo" / "config.json", json.dumps(_demo_config(demo, redis_url, var / "demo")))
    for server in demo:
        if server.is_gone:  # it stays in the config, silent, so that it can come back without a restart
            gone_mark(server).parent.mkdir(parents=True, exist_ok=True)
            gone_mark(server).touch()


def gone_mark(server: Server) -> Path:
    """Beside the files of a simulated server that was decommissioned; the demo's process looks for it."""
    return Path(settings.VAR_DIR) / "demo" / server.name / fleet.GONE


def tidy_demo(demo: list[Server]) -> list[str]:
    """Remove the files of simulated servers that are no more, unless a job still runs there; their names."""
    kept = {server.name for server in demo}
    gone = []
    for state in sorted((Path(settings.VAR_DIR) / "demo").glob("*/root")):
        folder = state.parent
        if folder.name not in kept and not any(map(spool.is_alive, spool.folders(folder / "attempts"))):
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder.name)
    return gone


def _demo_config(demo: list[Server], redis_url: str, folder: Path) -> dict[str, Any]:
    servers = [agent_config(server, redis_url, folder / server.name) for server in demo]
    return {"redis_url": valkey.url_for(redis_url, streams.DEMO_USER, demo_password()), "servers": servers}


def demo_was_removed() -> bool:
    return removed_mark().exists()


def removed_mark() -> Path:
    return Path(settings.VAR_DIR) / "demo" / "removed"


def enlist_demo(count: int) -> list[Server]:
    """Make the rows of simulated servers match the demo fleet of `count`; the rows, in the fleet's order.

    No row at all once an administrator has removed the demo fleet. A name that a real server has is left to it.
    """
    wanted = {} if demo_was_removed() else {entry["name"]: entry for entry in fleet.enlist(count)}
    with transaction.atomic():
        Server.objects.filter(simulated=True).exclude(name__in=wanted).delete()
        taken = set(Server.objects.filter(name__in=wanted).values_list("name", flat=True))
        Server.objects.bulk_create(_demo_row(entry) for name, entry in wanted.items() if name not in taken)
        rows = {row.name: row for row in Server.objects.filter(simulated=True)}
        demo_models.enlist([rows.get(name) for name in wanted])
        demo_models.forget()
    return [rows[name] for name in wanted if name in rows]


def _demo_row(entry: dict[str, Any]) -> Server:
    return Server(
        name=entry["name"],
        hostname=entry["hostname"],
        rack=entry["rack"],
        family=entry["family"],
        labels=entry["labels"],
        simulated=True,
    )


def remove_demo(*, by: User) -> int:
    """Remove every simulated server with its jobs and history, for good; how many there were."""
    mark = removed_mark()
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(by.username)
    with transaction.atomic():
        gone = list(Server.objects.filter(simulated=True))
        Server.objects.filter(simulated=True).delete()
        demo_models.forget()
        audit.record(by, "demo.removed", by, servers=len(gone))
        transaction.on_commit(lambda: _forget(server.pk for server in gone))
    return len(gone)


def _forget(server_ids: Iterable[int]) -> None:
    try:
        connection = client(10.0)
        connection.acl_deluser(streams.DEMO_USER)
        for server_id in server_ids:
            forget(connection, server_id)
    except redis.RedisError as error:
        # The hourly sweep of console/schedule.py does it again.
        log.warning("The keys of removed servers stay in Redis until it answers: %s", error)


def hang_up(connection: Any, server: Server) -> None:
    """End the connections that the server opened with the credentials it had."""
    try:
        connection.execute_command("CLIENT", "KILL", "USER", streams.user(server.pk))
    except redis.ResponseError:
        pass  # Redis knows no such user, so there is no connection of one


def save_users(connection: Any) -> None:
    """A Redis that is restarted by itself, not with the console, shall know the users still."""
    try:
        connection.execute_command("ACL", "SAVE")
    except redis.ResponseError:
        pass  # it keeps its users in no file; the console gives them at its next start


def forget(connection: Any, server_id: int) -> None:
    """Take a server's user and keys out of Redis. Raises redis.RedisError."""
    connection.acl_deluser(streams.user(server_id))
    keys = list(connection.scan_iter(f"{streams.prefix(server_id)}:*", count=1000))
    for start in range(0, len(keys), 500):
        connection.unlink(*keys[start : start + 500])
    connection.hdel(streams.FLEET_NOW, server_id)
    connection.hdel(streams.FLEET_BEATS, server_id)


def forget_gone() -> list[int]:
    """Take what belongs to no server any more out of Redis; the ids that were found. Raises redis.RedisError."""
    connection = client(10.0)
    known = set(Server.objects.present().values_list("pk", flat=True))
    users = (re.fullmatch(r"h(\d+)", name) for name in connection.acl_users())
    found = {int(match[1]) for match in users if match}
    found |= {
        int(match[1])
        for key in connection.scan_iter("h:*", count=1000)
        if (match := re.match(r"h:(\d+):", key.decode()))
    }
    found |= {int(field) for field in connection.hkeys(streams.FLEET_NOW)}
    gone = sorted(found - known)
    for server_id in gone:
        forget(connection, server_id)
    return gone


def rights() -> dict[str, list[str]]:
    """The Redis users that the servers need: name to rules, as ACL SETUSER takes them."""
    servers = Server.objects.present().order_by("pk").select_related("rotation")
    rules = {streams.user(server.pk): rights_of(server) for server in servers.defer("facts")}
    if Server.objects.filter(simulated=True).exists():
        rules[streams.DEMO_USER] = streams.demo_acl_rules(demo_password())
    return rules


def rights_of(server: Server) -> list[str]:
    """The rules of one server's user as its row has them now: two passwords while its keys change, off when cut off."""
    rotation = getattr(server, "rotation", None)
    more = [rotation.password] if rotation is not None and rotation.phase == Phase.ASKED else []
    return streams.acl_rules(server.pk, server.redis_password, *more, on=server.cut_off_at is None)


def apply_rights(connection: Any, server: Server) -> None:
    """Bring one server's user in Redis to what its row says. Raises redis.RedisError."""
    set_users(connection, {streams.user(server.pk): rights_of(server)})
    save_users(connection)


def set_users(connection: Any, users: Mapping[str, list[str]]) -> None:
    """Give these users (name: rules) their rights, at once with the commands that this Redis knows.

    Raises redis.RedisError.
    """
    answers = _set_users(connection, users)
    failed = {name: rules for name, rules in users.items() if isinstance(answers[name], redis.ResponseError)}
    older = {name: [rule for rule in rules if rule not in streams.NEWER_RULES] for name, rules in failed.items()}
    for answer in _set_users(connection, older).values():
        if isinstance(answer, redis.RedisError):
            raise answer
    for rule in streams.NEWER_RULES if older else []:
        _set_users(connection, {name: [rule] for name in older})  # what it does not know, nobody can call


def _set_users(connection: Any, users: Mapping[str, list[str]]) -> dict[str, Any]:
    pipe = connection.pipeline(transaction=False)
    for name, rules in users.items():
        pipe.execute_command("ACL", "SETUSER", name, *rules)
    return dict(zip(users, pipe.execute(raise_on_error=False) if users else [], strict=True))


def demo_password() -> str:
    return secret("DEMO_REDIS_PASSWORD", Path(settings.VAR_DIR) / "demo" / "password")


def grant(connection: Any) -> None:
    """Give every server its rights in a Redis that is already running. Raises redis.RedisError."""
    set_users(connection, rights())


def grant_missing(connection: Any) -> list[str]:
    """Give back their rights to the users that Redis does not know, and to no other; the names.

    A Redis of the site's own that keeps its users in no file forgets them when it restarts, and every agent would
    stand outside until the console's next start. Raises redis.RedisError.
    """
    known = {name.decode() if isinstance(name, bytes) else name for name in connection.acl_users()}
    missing = {name: rules for name, rules in rights().items() if name not in known}
    set_users(connection, missing)
    return sorted(missing)
