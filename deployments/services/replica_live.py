"""What engines say of themselves each second: numbers in Redis for pages, rows only where something has changed.

The keeper's `now.json` travels in the sample of its server. `Live` is ingest's; `read` is for everybody. In Redis, for
each replica: {"seen": epoch of receipt, "state", "at", "metrics": {…}}; what is older than FRESH_S is not known now.
"""

import contextlib
import json
import time
from collections import defaultdict
from collections.abc import Container, Iterable
from typing import Any

import redis
from django.db import OperationalError, transaction
from django.utils import timezone

from console import live, streams
from console.redis import client
from deployments.models import Deployment, Replica
from deployments.row_locks import hold_servers
from deployments.services import deployment_json, reconcile_asking, replica_events, replica_now

FRESH_S = 10.0
MOST_ENGINES = 64  # of one sample
NOTE_HEARD_S = 30.0
Messages = list[tuple[str, bytes]]


class Live:
    """Ingest's memory of the replicas there are. `at` is the console's clock, seconds."""

    def __init__(self) -> None:
        self.replicas: dict[int, tuple[list[int], int]] = {}  # replica: its servers, its deployment
        self.by_server: defaultdict[int, list[int]] = defaultdict(list)  # replicas by the first of their servers
        self.said: dict[int, dict[str, Any]] = {}  # cleaned, until the row has been compared with it
        self.rows: dict[int, tuple[Any, ...]] = {}  # what was compared last
        self.seen: dict[int, float] = {}
        self.changed: set[int] = set()  # of which Redis holds something older
        self.moved: set[int] = set()  # deployments of which a page holds something older
        self._noted: dict[int, float] = {}

    def know(self) -> None:
        """The replicas as the database has them now. One query."""
        rows = Replica.objects.there().only("pk", "server_id", "nodes", "deployment_id")
        self.replicas = {row.pk: (row.server_ids, row.deployment_id) for row in rows}
        self.by_server = defaultdict(list)
        for pk, (servers, _deployment) in self.replicas.items():
            self.by_server[servers[0] if servers else 0].append(pk)
        for gone in self.seen.keys() - self.replicas.keys():
            for kept in (self.said, self.rows, self.seen, self._noted):
                kept.pop(gone, None)
            self.changed.add(gone)

    def take(self, server_id: int, engines: Any, received: float) -> None:
        """Take `engines` of a sample; what a server says of replicas that run elsewhere is dropped."""
        for item in engines[:MOST_ENGINES] if isinstance(engines, list) else ():
            now = replica_now.clean(item)
            servers, deployment = self.replicas.get(now["replica"], ([], 0)) if now else ([], 0)
            if now is None or not servers or servers[0] != server_id:
                continue
            pk = now["replica"]
            if item.get("kept") is False and now["state"] not in ("failed", "stopped"):
                continue  # its keeper is no more, and what it said last is old
            self.seen[pk] = received
            self.changed.add(pk)
            self.moved.add(deployment)
            self.said[pk] = now

    def metrics_of(self, server_id: int, at: float) -> dict[int, dict[str, Any]]:
        """What the engines of that server said in the sample of this moment, {replica: metrics}."""
        here = self.by_server.get(server_id, ())
        return {pk: self.said[pk]["metrics"] for pk in here if self.seen.get(pk) == at and pk in self.said}

    def each_second(self, pipeline: Any, open_topics: Container[str]) -> Messages:
        """Write the numbers into `pipeline` and what has changed into rows; what pages are to hear."""
        fields = {str(pk): json.dumps(self._kept(pk)) for pk in self.changed if pk in self.said}
        if fields:
            pipeline.hset(streams.REPLICAS_NOW, mapping=fields)
        gone = [str(pk) for pk in self.changed if pk not in self.replicas]
        if gone:
            pipeline.hdel(streams.REPLICAS_NOW, *gone)
        self.changed.clear()
        changed = self._write()
        moved, self.moved = self.moved, set()
        return self._messages(changed, moved, open_topics)

    def _kept(self, pk: int) -> dict[str, Any]:
        now = self.said[pk]
        return {"seen": self.seen[pk], "state": now["state"], "at": now["at"], "metrics": now["metrics"]}

    def _write(self) -> set[int]:
        """Rows of those that say something else than they did; ids of rows that have changed by it."""
        told = ("state", "pid", "restarts", "progress", "reason", "facts")
        keys = {pk: tuple(now[name] for name in told) for pk, now in self.said.items()}
        news = {pk for pk, key in keys.items() if self.rows.get(pk) != key}
        due = {pk for pk, at in self.seen.items() if at - self._noted.get(pk, 0.0) >= NOTE_HEARD_S}
        if not news and not due:
            return set()
        try:
            changed = self._write_rows(news, due)
        except OperationalError:  # busy or away: the next second writes it
            return set()
        self.rows |= {pk: keys[pk] for pk in news}
        self._noted |= {pk: self.seen[pk] for pk in due}
        return changed

    @transaction.atomic
    def _write_rows(self, news: set[int], due: set[int]) -> set[int]:
        hold_servers({pk for replica in news | due for pk in self.replicas.get(replica, ([], 0))[0]})
        rows = Replica.objects.select_for_update(no_key=True, of=("self",)).filter(pk__in=news).order_by("pk")
        changed = set()
        for replica in rows.select_related("deployment", "serve_job", "stop_job"):
            if replica_events.heard(replica, self.said[replica.pk]):
                changed.add(replica.pk)
                reconcile_asking.ask(replica.deployment_id)
        Replica.objects.filter(pk__in=due).update(heard_at=timezone.now())
        return changed

    def _messages(self, changed: set[int], moved: set[int], open_topics: Container[str]) -> Messages:
        made = replica_messages(changed)
        wanted = [pk for pk in moved if f"deployment:{pk}" in open_topics]
        found = Deployment.objects.present().filter(pk__in=wanted) if wanted else []
        return made + [live.message(f"deployment:{row.pk}", "deployment", deployment_json.of(row)) for row in found]


def replica_messages(pks: Iterable[int]) -> Messages:
    """What pages hear of replicas that have changed; two queries."""
    pks = list(pks)
    if not pks:
        return []
    rows = list(Replica.objects.filter(pk__in=pks).select_related("server", "revision", "serve_job", "stop_job"))
    made = [live.message(f"replica:{row.pk}", "state", deployment_json.replica(row, None), 0) for row in rows]
    return made + [live.message("deployments", "moved", {"id": pk}) for pk in {row.deployment_id for row in rows}]


def read(pks: Iterable[int]) -> dict[int, dict[str, Any]]:
    """{replica id: what it said last} of those that are known and were heard within FRESH_S; {} without Redis."""
    names = [str(pk) for pk in pks]
    if not names:
        return {}
    with contextlib.suppress(redis.RedisError):
        kept = client().hmget(streams.REPLICAS_NOW, names)
        said = {int(name): json.loads(value) for name, value in zip(names, kept, strict=True) if value}
        oldest = time.time() - FRESH_S
        return {pk: now for pk, now in said.items() if now["seen"] >= oldest}
    return {}
