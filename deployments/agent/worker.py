"""Takes this server's signed jobs from its RQ queue. RQ carries the dispatch only, which lasts milliseconds.

    python -m deployments.agent.worker --config <config.json> [--burst]

What stands in Redis is untrusted: an entry may name any function and callbacks, and asks for nothing here but to
be judged by `dispatch`.
"""

import argparse
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import redis

from deployments import locks
from deployments.agent import credentials, keys
from deployments.agent.adopt import RUNNER, Adopter
from deployments.agent.config import Config, Current, begin
from deployments.agent.dispatch import WORKER_LOCK, Dispatcher
from deployments.agent.engines import watch
from deployments.agent.gateways import watch as gateways

if TYPE_CHECKING:
    from rq.job import Job
    from rq.queue import Queue
    from rq.worker import SimpleWorker

log = logging.getLogger("worker")

ADOPT_S = 2.0
DISPATCH_S = 60  # RQ's limit for one dispatch
WORKER_TTL_S = 25  # RQ waits for an entry for 15 s less
CONNECT_S = 5.0
RQ_ID = re.compile(rb"[A-Za-z0-9_-]{1,200}")
MAX_BACK_OFF_S = 5.0

_dispatcher: Dispatcher | None = None


def dispatch(body: str, mac: str) -> str:
    """The one function that an entry may name: "accepted", "already" or "refused: <reason>"."""
    assert _dispatcher is not None
    return _dispatcher.handle(body, mac)


def refuse(reason: str) -> str:
    """Count an entry that is not a dispatch at all."""
    assert _dispatcher is not None
    _dispatcher.note(refused=reason)
    log.warning("refused an entry: %s", reason)
    return f"refused: {reason}"


def job_class() -> "type[Job]":
    """RQ's job that can do nothing but be judged. RQ reads its key prefix when it is imported: not before."""
    from rq.exceptions import DeserializationError, NoSuchJobError
    from rq.job import Job

    class SignedJob(Job):
        def restore(self, raw_data: dict[bytes, bytes]) -> None:
            """Take nothing from the entry but its data: no callback, webhook, retry, repeat, dependency or limit."""
            if b"data" not in raw_data:
                raise NoSuchJobError(self.id)
            super().restore({b"data": raw_data[b"data"], b"origin": keys.QUEUE.encode()})
            self.timeout = DISPATCH_S
            self.refusal = self._judge()

        def _judge(self) -> str | None:
            """Why the entry is not for `dispatch`; None when it is. A function's name is never imported."""
            try:
                named, instance, args, kwargs = self.func_name, self.instance, self.args, self.kwargs
            except DeserializationError:
                self.data = self.serializer.dumps(("unreadable", None, [], {}))
                return "the entry is not JSON"
            if named != keys.ENTRY or instance or kwargs or not isinstance(args, (list, tuple)) or len(args) != 2:
                return "the entry does not call our one function with two texts"
            return None

        def _execute(self) -> str:
            """Call `dispatch`, whatever function the entry names."""
            return refuse(self.refusal) if self.refusal else dispatch(*self.args)

    return SignedJob


def queue_class() -> "type[Queue]":
    """RQ's queue that no unreadable entry can block."""
    from rq.queue import Queue

    class OwnQueue(Queue):
        @classmethod
        def lmove(cls, connection: Any, queue_key: str, timeout: int | None) -> Any:
            """Wait for an entry. We are the only worker and idle, so what is still in hand was left there by a cut."""
            put_back(connection, queue_key)
            found = super().lmove(connection, queue_key, timeout)
            while found is not None and not _is_rq_id(found[1]):
                connection.lrem(f"{queue_key}:intermediate", 1, found[1])
                refuse("the entry has no readable id")
                found = super().lmove(connection, queue_key, timeout)
            return found

        @classmethod
        def _fetch_dequeued_job(cls, connection: Any, queue_key: str, job_id: str, *rest: Any, **named: Any) -> Any:
            """As RQ's, and an entry that cannot be read does not stay in hand."""
            try:
                found = super()._fetch_dequeued_job(connection, queue_key, job_id, *rest, **named)
            except redis.ConnectionError:
                raise
            except Exception as error:
                refuse(f"the entry cannot be read ({type(error).__name__})")
                found = None
            if found is None:
                connection.lrem(f"{queue_key}:intermediate", 1, job_id)
            return found

    return OwnQueue


def worker_class() -> "type[SimpleWorker]":
    """RQ's worker that takes no unsigned commands and survives an end without Redis."""
    from rq.worker import SimpleWorker

    class DispatchWorker(SimpleWorker):
        log_job_description = False
        log_result_lifespan = False
        max_connection_wait_time = MAX_BACK_OFF_S

        def subscribe(self) -> None:
            """No commands over pub/sub: they are not signed."""

        def unsubscribe(self) -> None:
            pass

        def teardown(self) -> None:
            try:
                super().teardown()  # type: ignore[no-untyped-call]
            except redis.RedisError:
                pass  # Redis is away; the worker's key there ends by itself

    DispatchWorker.job_class, DispatchWorker.queue_class = job_class(), queue_class()
    return DispatchWorker


def _is_rq_id(name: bytes) -> bool:
    return RQ_ID.fullmatch(name) is not None


def put_back(connection: Any, queue_key: str) -> int:
    """Move what an ended worker had in hand back to the head of the queue, in order; returns how many."""
    moved = 0
    while connection.lmove(f"{queue_key}:intermediate", queue_key, "RIGHT", "LEFT") is not None:
        moved += 1
    return moved


def put_back_started(connection: Any, prefix: str) -> int:
    """The same for entries that RQ notes as started: a dispatch is repeated without harm, but never forgotten."""
    started = f"{keys.rq_prefix(prefix)}:wip:{keys.QUEUE}"
    members = connection.zrange(started, 0, -1)
    for member in members:
        connection.lpush(f"{keys.rq_prefix(prefix)}:queue:{keys.QUEUE}", member.partition(b":")[0])
        connection.zrem(started, member)
    return len(members)


class AdoptThread(threading.Thread):
    """Adopts attempts, and sees to keepers of engines, at start, every 2 s, and when a dispatch has claimed one; needs
    no Redis.

    Where Redis is reached otherwise by now, `has_moved`, the process is ended, to be started anew.
    """

    def __init__(self, adopter: Adopter, has_moved: Callable[[], bool] = lambda: False) -> None:
        super().__init__(name="adopt", daemon=True)
        self.adopter = adopter
        self.has_moved = has_moved
        self.woken = threading.Event()

    def run(self) -> None:
        while True:
            for look in (
                self.adopter.tick,
                lambda: watch.sweep(self.adopter.config),
                lambda: gateways.sweep(self.adopter.config),
            ):
                try:
                    look()
                except Exception:
                    log.exception("looking after attempts, engines and gateways failed")
            if self.has_moved():
                log.warning("Redis has another address or another authority now: starting anew")
                os.kill(os.getpid(), signal.SIGTERM)
                self.has_moved = lambda: False
            self.woken.wait(ADOPT_S)
            self.woken.clear()


def has_moved(config: Config) -> Callable[[], bool]:
    """Tells whether the link goes by another address than `config`, or trusts another authority."""
    current = Current(config)

    def way(found: Config) -> tuple[str, dict[str, str]]:
        return credentials.without(found.redis_url), found.redis_options

    return lambda: way(current()) != way(config)


def connect(config: Config) -> "redis.Redis":
    """A client whose reads outlast RQ's blocking pop (worker_ttl - 15 s): redis-py's own limit is 5 s."""
    return redis.Redis.from_url(
        credentials.without(config.redis_url),
        credential_provider=credentials.Provider(Current(config)),
        socket_timeout=WORKER_TTL_S,
        socket_connect_timeout=CONNECT_S,
        socket_keepalive=True,
        **config.redis_options,
    )


def redis_now(connection: "redis.Redis") -> float:
    """Redis's clock: the server's own may be wrong."""
    seconds, micros = connection.time()
    return float(seconds) + float(micros) / 1e6


def work_once(config: Config, connection: "redis.Redis", *, burst: bool) -> bool:
    """Work until told to stop (True) or until RQ gives up (False), as it does when Redis is away for long."""
    made = worker_class()
    put_back_started(connection, config.prefix)
    queue = made.queue_class(keys.QUEUE, connection=connection, serializer="json", job_class=made.job_class)
    worker = made(
        [queue],
        name=f"{config.server_id}-{os.getpid()}-{time.monotonic_ns()}",
        connection=connection,
        serializer="json",
        worker_ttl=WORKER_TTL_S,
        log_job_description=False,
    )
    worker.work(burst=burst, logging_level="WARNING")
    return burst or worker._shutdown_requested_date is not None


def work(config: Config, *, burst: bool) -> None:
    """Work, whatever happens to Redis, until SIGTERM or, with `burst`, until the queue is empty."""
    from rq.exceptions import StopRequested

    global _dispatcher
    connection = connect(config)
    assert _dispatcher is not None
    _dispatcher.redis_now = lambda: redis_now(connection)
    pause = 0.2
    while True:
        began = time.monotonic()
        try:
            if work_once(config, connection, burst=burst):
                return
        except StopRequested:
            return
        except redis.RedisError as error:
            if burst:
                log.warning("Redis does not answer as it should (%s)", error)
                return
            log.warning("Redis does not answer as it should (%s); trying again in %.1f s", error, pause)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # RQ's handler belongs to a worker that is no more
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if time.monotonic() - began > 10 * MAX_BACK_OFF_S:
            pause = 0.2
        time.sleep(pause)
        pause = min(pause * 2, MAX_BACK_OFF_S)


def main(argv: list[str] | None = None, runner: Sequence[str] = RUNNER) -> int:
    parser = argparse.ArgumentParser(prog="deployments.agent.worker")
    parser.add_argument("--burst", action="store_true", help="end when the queue is empty")
    options, config = begin(parser, argv)
    config.attempts.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = locks.take_lock(config.state_dir / WORKER_LOCK)
    if lock is None:
        log.info("another worker serves this server")
        return 0 if options.burst else 1
    os.environ["RQ_KEY_PREFIX"] = keys.rq_prefix(config.prefix)
    adopting = AdoptThread(Adopter(config, runner), has_moved(config))
    global _dispatcher
    _dispatcher = Dispatcher(config, time.time, adopting.woken.set)
    if options.burst:
        _dispatcher.wake = lambda: None
        work(config, burst=True)
        if not config.simulated:  # there the demo's own process looks after attempts
            adopting.adopter.tick()
    else:
        adopting.start()
        work(config, burst=False)
    os.close(lock)
    return 0


if __name__ == "__main__":
    # As `deployments.agent.worker`, not as `__main__`: the functions above look into one module.
    from deployments.agent import worker

    sys.exit(worker.main())
