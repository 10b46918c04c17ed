"""What the page of queues shows: each server's queue, why its jobs wait, and the console's own queue and processes.

A fixed number of database queries, and of trips to Redis, for any number of servers. What a server's own keys say is
untrusted: lengths only are read, and one that is no list is shown as unknown.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import redis
from django.db.models import Count, F, Min, Q, Window
from django.db.models.functions import RowNumber
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from console import streams
from console.errors import brief
from console.redis import client
from deployments.models import Job, JobState, Server
from deployments.services import waiting
from deployments.services.waiting import Wait

PAGE = 100
# RQ's own words for what a worker does.
WORKER_DOES = (gettext_noop("started"), gettext_noop("busy"), gettext_noop("idle"), gettext_noop("suspended"))
JOBS_OF_ONE = 5
FAILED_SHOWN = 10
LATE_S = 15.0
QUEUE = "default"  # the console's own


class Counts(NamedTuple):
    """Jobs of one server: handed over or waiting, of these waiting, running; when the oldest was queued."""

    queued: int = 0
    waiting: int = 0
    running: int = 0
    oldest: datetime | None = None


class Beat(NamedTuple):
    """What the last beat said: when (epoch, the console's clock), and whether the worker lives."""

    at: float
    worker: bool


class Waiting(NamedTuple):
    """A queued job, and why it is where it is."""

    job: Job
    words: str


@dataclass
class Line:
    """One server. `depth` and `in_hand` are entries in Redis, None where nobody knows."""

    server: Server
    counts: Counts
    beat: Beat | None
    depth: int | None = None
    in_hand: int | None = None
    jobs: list[Waiting] = field(default_factory=list)

    @property
    def more(self) -> int:
        return max(0, self.counts.queued - len(self.jobs))

    @property
    def worker(self) -> str:
        """alive, down or unknown: silence says nothing about a worker."""
        if self.beat is None or time.time() - self.beat.at > LATE_S:
            return "unknown"
        return "alive" if self.beat.worker else "down"

    @property
    def is_notable(self) -> bool:
        held = self.server.queue_paused or self.server.cut_off_at is not None
        return bool(self.counts.queued or self.counts.running or held or self.worker == "down")


@dataclass
class Page:
    lines: list[Line]
    shown: int  # of those that match
    total: int  # of all servers
    number: int
    last: int
    own: "Own"


def page(*, every: bool = False, word: str = "", number: int = 1) -> Page:
    """Servers where something is queued, runs or is held, longest wait first; `every` shows the others too."""
    servers = list(
        Server.objects.filter(decommissioned_at=None)
        .defer("facts", "key", "redis_password")
        .select_related("queue_paused_by")
    )
    counts, beats, own = _counts(), _beats(), console_queue()
    lines = [Line(server, counts.get(server.pk, Counts()), beats.get(server.pk)) for server in servers]
    found = [line for line in lines if (every or line.is_notable) and word.lower() in line.server.name.lower()]
    found.sort(key=lambda line: (line.counts.oldest or timezone.now(), not line.is_notable, line.server.name))
    last = max(1, -(-len(found) // PAGE))
    number = min(max(1, number), last)
    shown = found[(number - 1) * PAGE : number * PAGE]
    _fill_depths(shown)
    _fill_jobs(shown)
    return Page(shown, len(found), len(servers), number, last, own)


def _counts() -> dict[int, Counts]:
    queued = Q(state=JobState.QUEUED)
    rows = Job.objects.filter(queued | Q(state=JobState.RUNNING)).order_by().values_list("server_id")
    told = rows.annotate(
        queued=Count("pk", filter=queued),
        held=Count("pk", filter=queued & Q(waiting=True)),
        running=Count("pk", filter=Q(state=JobState.RUNNING)),
        oldest=Min("created_at", filter=queued),
    )
    return {row[0]: Counts(*row[1:]) for row in told}


def _beats() -> dict[int, Beat]:
    try:
        kept = client().hgetall(streams.FLEET_BEATS)
    except redis.RedisError:
        return {}
    return {int(pk): Beat(*json.loads(value)) for pk, value in kept.items()}


def _fill_depths(lines: Iterable[Line]) -> None:
    """In one trip."""
    lines = list(lines)
    pipe = client().pipeline(transaction=False)
    for line in lines:
        key = f"{streams.rq_prefix(line.server.pk)}:queue:jobs"
        pipe.llen(key)
        pipe.llen(f"{key}:intermediate")
    try:
        answers = pipe.execute(raise_on_error=False) if lines else []
    except redis.RedisError:
        return
    for line, depth, in_hand in zip(lines, answers[::2], answers[1::2], strict=True):
        line.depth = depth if isinstance(depth, int) else None
        line.in_hand = in_hand if isinstance(in_hand, int) else None


def _fill_jobs(lines: Iterable[Line]) -> None:
    """The oldest queued jobs of each, with the reason. Two queries."""
    of = {line.server.pk: line for line in lines if line.counts.queued}
    if not of:
        return
    place = Window(RowNumber(), partition_by="server_id", order_by=F("pk").asc())
    rows = Job.objects.filter(server__in=list(of), state=JobState.QUEUED).annotate(place=place)
    jobs = list(rows.filter(place__lte=JOBS_OF_ONE).order_by("pk"))
    for job in jobs:
        job.server = of[job.server_id].server
    why = waiting.explain(jobs)
    for job in jobs:
        line = of[job.server_id]
        line.jobs.append(Waiting(job, _words(line, job, why)))


def _words(line: Line, job: Job, why: Mapping[int, Wait]) -> str:
    if job.pk in why:
        return why[job.pk].words()
    if line.server.cut_off_at is not None:
        return _("handed over; the server is switched off")
    if line.server.is_silent:
        return _("handed over; the server is silent")
    if line.worker == "down":
        return _("handed over; the server's worker does not run")
    return _("handed over; starts in a moment")


def line_json(line: Line) -> dict[str, Any]:
    """One server as REST tells it; what nobody knows is null."""
    counts = line.counts
    return {
        "server": line.server.name,
        "queued": counts.queued,
        "waiting": counts.waiting,
        "running": counts.running,
        "oldest": counts.oldest.isoformat() if counts.oldest else None,
        "depth": line.depth,
        "in_hand": line.in_hand,
        "worker": line.worker,
        "beat_at": _iso(line.beat.at if line.beat else None),
        "paused": line.server.queue_paused,
        "switched_off": line.server.cut_off_at is not None,
        "jobs": [{"id": one.job.pk, "kind": one.job.kind, "why": one.words} for one in line.jobs],
    }


# ---------- the console itself ----------


@dataclass(frozen=True)
class Process:
    """One process of the console: when it said last that it lives (epoch), and what it does."""

    name: str
    at: float | None
    does: str = ""

    @property
    def is_late(self) -> bool:
        return self.at is None or time.time() - self.at > self.late_s

    @property
    def late_s(self) -> float:
        return 10.0 if self.name == "ingest" else 600.0  # RQ's worker and scheduler say so every few minutes


class Failed(NamedTuple):
    id: str
    function: str
    at: datetime | None
    error: str


@dataclass
class Own:
    """The console's own queue; `problem` where Redis does not answer."""

    depth: int | None = None
    oldest: datetime | None = None
    processes: list[Process] = field(default_factory=list)
    failed: int | None = None
    failures: list[Failed] = field(default_factory=list)
    used_mb: int | None = None
    most_mb: int | None = None
    problem: str = ""


def console_queue() -> Own:
    try:
        return _own(client())
    except redis.RedisError as error:
        return Own(problem=brief(error))


def _own(connection: Any) -> Own:
    from rq.cron import CronScheduler
    from rq.queue import Queue
    from rq.registry import FailedJobRegistry
    from rq.serializers import JSONSerializer
    from rq.worker import Worker

    queue = Queue(QUEUE, connection=connection, serializer=JSONSerializer)
    failed = FailedJobRegistry(queue=queue)
    first = queue.get_jobs(0, 1)
    memory = connection.info("memory")
    processes = [_ingest(connection)]
    for worker in Worker.all(queue=queue, serializer=JSONSerializer):
        does = str(worker.get_state())
        processes.append(Process("worker", _epoch(worker.last_heartbeat), _(does) if does in WORKER_DOES else does))
    for scheduler in CronScheduler.all(connection, cleanup=False):
        processes.append(Process("scheduler", _epoch(scheduler.last_heartbeat)))
    for name in ("worker", "scheduler"):
        if not any(process.name == name for process in processes):
            processes.append(Process(name, None))
    return Own(
        depth=queue.count,
        oldest=first[0].enqueued_at if first else None,
        processes=processes,
        failed=failed.count,
        failures=[_failure(job) for job in queue.job_class.fetch_many(
            failed.get_job_ids(0, FAILED_SHOWN - 1, desc=True), connection=connection, serializer=JSONSerializer
        ) if job is not None],
        used_mb=memory["used_memory"] // 2**20,
        most_mb=(memory.get("maxmemory") or 0) // 2**20 or None,
    )  # fmt: skip


def own_json(own: Own) -> dict[str, Any]:
    """The console's own queue and processes as REST tells them."""
    return {
        "depth": own.depth,
        "oldest": own.oldest.isoformat() if own.oldest else None,
        "failed": own.failed,
        "redis_used_mb": own.used_mb,
        "redis_most_mb": own.most_mb,
        "problem": own.problem,
        "processes": [
            {"name": one.name, "beat_at": _iso(one.at), "late": one.is_late, "does": one.does} for one in own.processes
        ],
    }


def _ingest(connection: Any) -> Process:
    said = json.loads(connection.get(streams.INGEST_ALIVE) or "{}")
    lag = said.get("lag_ms")
    return Process("ingest", said.get("t"), "" if lag is None else _("%(n)s ms behind") % {"n": round(lag)})


def _failure(job: Any) -> Failed:
    """The last line of a failure says what it was."""
    result = job.latest_result()
    lines = ((result.exc_string if result else "") or "").strip().splitlines()
    return Failed(job.id, str(job.func_name), job.ended_at, lines[-1][:300] if lines else "—")


def _epoch(at: datetime | None) -> float | None:
    if at is None:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=timezone.get_fixed_timezone(0))).timestamp()


def _iso(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, tz=UTC).isoformat()
