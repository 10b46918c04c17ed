"""One server cannot stop the others: what each holds in Redis is watched, and who holds too much is switched off.

`Watch` asks for Redis's used memory twenty times a second, which costs next to nothing. Only where that has grown by a
quarter of a quota, or connections by MOST_CONNECTIONS, it looks who has grown: keys below each server's prefix, and
what Redis keeps for each server's connections (unread answers, half a command, subscriptions). A server that is
switched off keeps spooling; an operator switches it on again.
"""

import logging
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, close_old_connections, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from console import alerts, audit, streams
from console.errors import Conflict, Unavailable
from console.models import User
from console.redis import client
from deployments.models import Server
from deployments.row_locks import lock_server
from deployments.services import enrol, jobs
from deployments.steps import Text

log = logging.getLogger(__name__)

ALERT = "server-cut-off"
LOOK_S = 0.05
FULL_LOOK_S = 60.0  # memory that one server gains while another frees as much makes no jump
MB = 2**20
LEAST_MB, MOST_MB = 8, 64
PRESSURE = 0.7  # of Redis's memory: from here on LEAST_MB is too much
MOST_CONNECTIONS = 64  # an agent has five
SCANNED_KEYS = 50_000  # with more, chance decides whose are looked at
SAMPLE = 500
KEPT_SAMPLES = 120


def quota_mb(maxmemory: int, servers: int) -> int:
    """How much one server may hold: the setting, else a quarter of what is left once each server has its MB."""
    if settings.SERVER_QUOTA_MB:
        return int(settings.SERVER_QUOTA_MB)
    if not maxmemory:
        return MOST_MB
    return int(max(LEAST_MB, min(MOST_MB, (maxmemory / MB - servers) / 4)))


@dataclass(frozen=True)
class Holding:
    """What one server holds: bytes in keys, bytes for its connections, how many of these."""

    keys: int = 0
    buffers: int = 0
    connections: int = 0


def holdings(connection: Any) -> dict[int, Holding]:
    """{server id: Holding}. Raises redis.RedisError."""
    keys = _by_sample(connection) if connection.dbsize() > SCANNED_KEYS else _by_scan(connection)
    buffers, connections = _clients(connection)
    return {
        pk: Holding(keys.get(pk, 0), buffers.get(pk, 0), connections.get(pk, 0))
        for pk in keys.keys() | connections.keys()
    }


def _by_scan(connection: Any) -> Counter[int]:
    found: Counter[int] = Counter()
    cursor = 0
    while True:
        cursor, names = connection.scan(cursor, match="h:*", count=1000)
        for pk, size in _sizes(connection, names):
            found[pk] += size
        if not cursor:
            return found


def _by_sample(connection: Any) -> Counter[int]:
    """Where somebody has made very many keys, keys taken by chance tell whose they are."""
    pipe = connection.pipeline(transaction=False)
    for _number in range(SAMPLE):
        pipe.randomkey()
    names = [name for name in pipe.execute() if name is not None]
    found: Counter[int] = Counter()
    for pk, size in _sizes(connection, names):
        found[pk] += size
    each = connection.dbsize() / max(1, len(names))
    return Counter({pk: int(size * each) for pk, size in found.items()})


def _sizes(connection: Any, names: list[bytes]) -> Iterator[tuple[int, int]]:
    """(server id, bytes) of each key that is a server's."""
    owned = [(pk, name) for name in names if (pk := _owner(name)) is not None]
    pipe = connection.pipeline(transaction=False)
    for _pk, name in owned:
        pipe.memory_usage(name, samples=5)
    answers = pipe.execute(raise_on_error=False) if owned else []
    for (pk, _name), size in zip(owned, answers, strict=True):
        if isinstance(size, int):  # else the key is gone by now
            yield pk, size


def _owner(name: bytes) -> int | None:
    parts = name.split(b":", 2)
    return int(parts[1]) if len(parts) == 3 and parts[0] == b"h" and parts[1].isdigit() and len(parts[1]) < 12 else None


def _clients(connection: Any) -> tuple[Counter[int], Counter[int]]:
    """Bytes that Redis keeps for the connections of each server, and how many there are."""
    sizes: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    for row in connection.client_list():
        user = str(row.get("user", ""))
        if user[:1] == "h" and user[1:].isdigit():
            pk = int(user[1:])
            # tot-mem is of Redis 7 and Valkey; before, what waits to be sent and to be understood.
            sizes[pk] += int(row.get("tot-mem") or int(row.get("omem") or 0) + int(row.get("qbuf") or 0))
            counts[pk] += 1
    return sizes, counts


def too_much(held: Mapping[int, Holding], used: int, maxmemory: int, servers: int) -> dict[int, Text]:
    """{server id: why} of those that are over their quota; under pressure already from LEAST_MB on."""
    pressed = bool(maxmemory) and used > PRESSURE * maxmemory
    limit = LEAST_MB if pressed and not settings.SERVER_QUOTA_MB else quota_mb(maxmemory, servers)
    found = {}
    for pk, one in held.items():
        mb = (one.keys + one.buffers) // MB
        if mb >= limit:
            found[pk] = Text(
                f"它在 Redis 中占用了 {mb} MB，超过 {limit} MB 的配额",
                f"it held {mb} MB in Redis, more than its quota of {limit} MB",
            )
        elif one.connections > MOST_CONNECTIONS:
            found[pk] = Text(
                f"它打开了 {one.connections} 个 Redis 连接，超过 {MOST_CONNECTIONS} 个",
                f"it had {one.connections} connections to Redis, more than {MOST_CONNECTIONS}",
            )
    return found


class Watch(threading.Thread):
    """One in the ingest process; acts while `active`. A thread, so that a busy database does not make it blind."""

    def __init__(self, url: str) -> None:
        super().__init__(name="quota", daemon=True)
        self.redis = redis.Redis.from_url(url, socket_timeout=10.0, socket_connect_timeout=2.0)
        self.active = False
        self.stopping = threading.Event()
        self.reported: queue.SimpleQueue[tuple[int, Text]] = queue.SimpleQueue()
        self.unsaved: dict[int, Text] = {}
        self.used_at_look = self.connected_at_look = 0
        self.look_at = 0.0

    def report(self, server_id: int, why: Text) -> None:
        """Switch this server off, because somebody else saw what it does."""
        self.reported.put((server_id, why))

    def run(self) -> None:
        pause = LOOK_S
        while not self.stopping.wait(pause * random.uniform(0.8, 1.2)):
            if not self.active:
                continue
            try:
                self.look()
                pause = LOOK_S
            except (redis.RedisError, OSError, DatabaseError) as error:
                log.warning("the quotas are not watched: %s", error)
                pause = min(5.0, pause * 2)
            except Exception:
                log.exception("the quotas are not watched")
                pause = 5.0

    def look(self) -> list[int]:
        """One look; ids of the servers that were switched off. Raises redis.RedisError, DatabaseError."""
        wrong: dict[int, Text] = {}
        while not self.reported.empty():
            pk, why = self.reported.get()
            wrong[pk] = why
        memory, clients = self.redis.info("memory"), self.redis.info("clients")
        used, most, connected = memory["used_memory"], memory.get("maxmemory", 0), clients["connected_clients"]
        if self._has_grown(used, most, connected):
            close_old_connections()
            held = holdings(self.redis)
            wrong |= too_much(held, used, most, self._servers)
            self.used_at_look, self.connected_at_look = used, connected
            self.look_at = time.monotonic() + FULL_LOOK_S
        self.used_at_look = min(self.used_at_look, used)
        self.connected_at_look = min(self.connected_at_look, connected)
        return self._cut_off(wrong)

    _servers = 1

    def _has_grown(self, used: int, most: int, connected: int) -> bool:
        if time.monotonic() >= self.look_at:
            self._servers = Server.objects.count()
            return True
        step = quota_mb(most, self._servers) * MB // 4
        return used - self.used_at_look > step or connected - self.connected_at_look > MOST_CONNECTIONS

    def _cut_off(self, wrong: Mapping[int, Text]) -> list[int]:
        """Redis first, for it is about to be full; then the rows, until that has worked."""
        if wrong:
            simulated = set(Server.objects.filter(pk__in=list(wrong), simulated=True).values_list("pk", flat=True))
            for pk, why in wrong.items():
                if pk in simulated:  # they share a user with all others, on this machine, and run our own code
                    log.warning("simulated server %s: %s", pk, why.en)
                elif pk not in self.unsaved and switch_off(self.redis, pk):
                    self.unsaved[pk] = why
        done = []
        for pk, why in list(self.unsaved.items()):
            note_cut_off(pk, why)
            del self.unsaved[pk]
            done.append(pk)
        return done


def switch_off(connection: Any, server_id: int) -> bool:
    """The server's user can do nothing any more; False where it could not before. Raises redis.RedisError."""
    user = streams.user(server_id)
    found = connection.acl_getuser(user)
    if found is None or "off" in found["flags"]:
        return False
    connection.execute_command("ACL", "SETUSER", user, "off")
    connection.execute_command("CLIENT", "KILL", "USER", user)
    enrol.save_users(connection)
    return True


def note_cut_off(server_id: int, why: Text) -> None:
    """Row, audit entry and alert. Raises DatabaseError."""
    with transaction.atomic():
        server = Server.objects.select_for_update(no_key=True).filter(pk=server_id).first()
        if server is None:
            return
        server.cut_off_at, server.cut_off_reason = timezone.now(), list(why)
        server.save(update_fields=["cut_off_at", "cut_off_reason"])
        audit.record(None, "server.cut_off", server, why=why.en)
        alerts.fire(
            ALERT,
            f"server:{server.pk}",
            what=Text(
                f"{server.name} 已被切断：{why.zh}，以免影响其他服务器",
                f"{server.name} was switched off, since {why.en}; so the others go on",
            ),
            do=Text(
                "它的代理会继续把日志保存在本机。查清是什么在写入，然后在服务器页面重新接通。",
                "Its agent keeps what it has on its own disk. Find out what writes so much, then switch it on again "
                "on its page.",
            ),
            severity="critical",
            link=f"/servers/{server.name}/",
        )
    log.warning("server %s was switched off: %s", server_id, why.en)


def switch_on(server: Server, *, by: User) -> Server:
    """Let a server back in. What it has written is cleared away, but for the lines that ingest has yet to read.

    Raises NotAllowed, Conflict where it is not off, Unavailable without Redis.
    """
    jobs.check_may_operate(by)
    jobs.check_present(server)
    try:
        if server.cut_off_at is not None:
            clear(client(10.0), server.pk)
        with transaction.atomic():
            server = lock_server(server.pk)
            if server.cut_off_at is None:
                raise Conflict(
                    _("%(name)s is not switched off.") % {"name": server.name},
                    _("Reload the page to see how it is."),
                    code="not_cut_off",
                )
            server.cut_off_at = server.cut_off_reason = None
            server.save(update_fields=["cut_off_at", "cut_off_reason"])
            audit.record(by, "server.switched_on", server)
            alerts.resolve(ALERT, f"server:{server.pk}")
            enrol.apply_rights(client(), server)
    except redis.RedisError as error:
        raise Unavailable(
            _("The console cannot reach its Redis just now."), _("Try again in a minute."), code="redis_unavailable"
        ) from error
    return server


def clear(connection: Any, server_id: int) -> int:
    """Take away all that lies below the server's prefix but its streams, and what they hold too much; how many keys.

    Dispatches that stood in its queue are sent again, since no event confirms them.
    """
    kept = {streams.logs(server_id).encode(), streams.telemetry(server_id).encode()}
    gone: list[bytes] = []
    for name in connection.scan_iter(f"{streams.prefix(server_id)}:*", count=1000):
        if name not in kept or connection.type(name) != b"stream":
            gone.append(name)
    for start in range(0, len(gone), 500):
        connection.unlink(*gone[start : start + 500])
    if connection.exists(streams.telemetry(server_id)):
        connection.xtrim(streams.telemetry(server_id), maxlen=KEPT_SAMPLES, approximate=False)
    return len(gone)
