"""The ingest process: reads every server's streams and turns them into rows, live state and messages.

One tick (50 ms): read all streams from the cursors kept in the database, store, then, after the commit and
in this order: trim, acknowledge, publish. SQLite's write lock is not fair, so the loop sleeps between commits.
Several processes may run: one holds the lease, the others stand by. Should two ever read at once, the
transaction in deployments.ingest.store lets each line in once.
"""

import json
import logging
import secrets
import signal
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, OperationalError, close_old_connections
from django.utils import timezone

from console import incoming, streams
from console.heads import Heads
from deployments import ingest as jobs_ingest
from deployments.models import Job, Server
from deployments.services import (
    approving,
    batches,
    campaigns,
    clones,
    enrol,
    jobs,
    join_news,
    lifecycle,
    orders,
    quota,
    reaper,
    reconcile,
    refusals,
    rotation,
    silence,
    waiting,
)
from deployments.services import repoint as _repoint  # noqa: F401 - what follows when its orders end
from deployments.services import servers as switches
from deployments.steps import Text
from monitoring.ingest import Messages, Telemetry
from monitoring.services import diagnosing, live_state, readings

log = logging.getLogger(__name__)

TICK_S = 0.05
LEASE_MS = 10_000
LOGS_A_READ = 100  # chunks a stream and tick
ENTRIES_A_STORE = 500  # bounds memory and the length of a transaction
TELEMETRY_A_READ = 50
BEATS_A_TICK = 5000
BEATS_A_PERIOD, BEAT_BYTES_A_PERIOD = 300, 2 * 2**20  # of one server in five seconds: an agent beats once, with 1 kB
RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"


class Ingest:
    """`run()` until SIGTERM. With Redis or the database away it waits and loses nothing: cursors move with rows."""

    def __init__(self, url: str) -> None:
        self.redis = incoming.connect(url)
        self.beats = self.redis.pubsub(ignore_subscribe_messages=True)
        self.me = secrets.token_hex(8)
        self.telemetry = Telemetry()
        self.log_cursors: dict[int, str] = {}
        self.telemetry_cursors: dict[int, str] = {}
        self.heads = Heads()
        self.hosts = clones.Watch()
        self.active: dict[int, set[str]] = {}  # server -> attempts that its beats name as running
        self.unanswered: dict[str, datetime] = {}  # attempts that reaper.give_up looks at
        self.workers: dict[int, str] = {}  # server -> what the page of queues says of its worker, until it is kept
        self.counts: dict[int, refusals.Counts] = {}  # server -> payloads it refused, until that is noted
        self.counted: dict[int, refusals.Counts] = {}
        self.answers: dict[int, orders.Answers] = {}  # server -> what it says about orders, until it is noted
        self.answered: dict[int, orders.Answers] = {}  # what it said before: agents repeat it in every beat
        self.beaten: dict[int, tuple[int, int]] = {}  # server -> beats and their bytes in this period
        self.quota = quota.Watch(url)
        self.silence = silence.Silence()
        self.diagnosing = diagnosing.Watch()
        self.stopping = False
        self.lag_ms = 0.0
        self._due: dict[str, float] = {}
        self._leading = False
        self._reading_since = 0.0
        self._turn_at = 0.0  # time.monotonic() of this turn

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        self.quota.start()
        wait = 0.2
        while not self.stopping:
            try:
                self._run_connected()
                wait = 0.2
            except (redis.RedisError, DatabaseError) as error:
                self.quota.active = False
                log.warning("ingest waits %.1f s: %s", wait, error)
                close_old_connections()
                time.sleep(wait)
                wait = min(5.0, wait * 2)
        self._release()

    def _stop(self, *_: Any) -> None:
        self.stopping = True

    def _release(self) -> None:
        try:
            self.redis.eval(RELEASE, 1, streams.INGEST_LEASE, self.me)
        except redis.RedisError:
            pass

    def _run_connected(self) -> None:
        self._give_rights_back()
        self.beats.psubscribe(streams.BEATS)
        self.log_cursors.clear()
        self._due.clear()
        self._reading_since = time.monotonic()
        self.heads.seed()
        self._load_servers()
        self._mend_cursors()
        while not self.stopping:
            started = time.monotonic()
            if self._is_due("connections", started, 30.0):
                close_old_connections()
            self.quota.active = self.holds_lease(started)
            if self.quota.active:
                self.tick(time.time(), started)
            time.sleep(max(0.005, TICK_S - (time.monotonic() - started)))

    def _give_rights_back(self) -> None:
        """Redis may have been restarted, and may have forgotten the servers' users."""
        try:
            if names := enrol.grant_missing(self.redis):
                log.warning("Redis had forgotten %s users of servers; they have their rights again", len(names))
        except redis.ResponseError as error:  # where the console may not manage users, the site does
            log.warning("the users of servers in Redis could not be looked at: %s", error)

    def holds_lease(self, now: float) -> bool:
        if not self._is_due("lease", now, LEASE_MS / 4000):
            return self._leading
        was_leading = self._leading
        self._leading = bool(self.redis.set(streams.INGEST_LEASE, self.me, nx=True, px=LEASE_MS))
        if not self._leading and (self.redis.get(streams.INGEST_LEASE) or b"").decode() == self.me:
            self._leading = bool(self.redis.pexpire(streams.INGEST_LEASE, LEASE_MS))
        if self._leading and not was_leading:
            self._reading_since = now  # what was said while another one listened, we have not heard
            self._due.pop("listen", None)
        return self._leading

    def _is_due(self, what: str, now: float, every_s: float) -> bool:
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + every_s
        return True

    def tick(self, at: float, monotonic: float) -> None:
        """One turn. `at` is the console's wall clock, `monotonic` the clock that periods are measured by."""
        self._turn_at = monotonic
        if self._is_due("servers", monotonic, 2.0):
            self._load_servers()
        self._read_beats(at)
        self._note_answers()
        self._read_logs()
        messages = self._read_telemetry(at)
        if self._is_due("second", monotonic, 1.0):
            messages += self._each_second(at)
            self._judge_silence(at, monotonic)
            if self.telemetry.has_news:
                self.telemetry.flush()
        self._publish(messages)
        if self._is_due("flush", monotonic, 5.0):
            self._each_five_seconds(monotonic)

    def _load_servers(self) -> None:
        servers = list(Server.objects.present().order_by("id").defer("facts", "notes"))
        self.telemetry.know(servers, live_state.held_now())
        self.telemetry.engines.know()
        for server in servers:
            self.log_cursors.setdefault(server.pk, server.logs_cursor)
            self.telemetry_cursors.setdefault(server.pk, server.telemetry_cursor)
        for gone in self.log_cursors.keys() - self.telemetry.servers.keys():
            self.log_cursors.pop(gone, None)
            self.telemetry_cursors.pop(gone, None)
        self.hosts.forget(self.telemetry.servers)

    def _mend_cursors(self) -> None:
        """Read a stream from its beginning where it ends before our place in it: that was another stream, before
        Redis came back empty with a clock that is behind. No line is stored twice for it."""
        for cursors, name in ((self.log_cursors, streams.logs), (self.telemetry_cursors, streams.telemetry)):
            pipeline = self.redis.pipeline(transaction=False)
            for pk in cursors:
                pipeline.xinfo_stream(name(pk))
            for (pk, cursor), info in zip(list(cursors.items()), pipeline.execute(raise_on_error=False), strict=True):
                # Where there is no such stream yet, an error says so.
                if isinstance(info, Exception) or incoming.is_before(info["last-generated-id"].decode(), cursor):
                    cursors[pk] = "0"

    def _read(
        self, cursors: dict[str, str], count: int
    ) -> list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes] | None]]]]:
        if not cursors:
            return []
        try:
            answer = self.redis.xread(cursors, count=count)
        except redis.ResponseError:
            if not self._remove_what_is_no_stream(cursors):
                raise
            answer = []
        found = list(answer.items()) if isinstance(answer, dict) else answer
        return [(key, entries) for key, entries in found if self._has_places(key, entries)]

    def _has_places(self, key: bytes, entries: Iterable[tuple[bytes, Any]]) -> bool:
        """False where a server has named a place after which none comes; then its stream goes, and it is off."""
        if all(map(incoming.is_place, (entry_id for entry_id, _fields in entries))):
            return True
        self.redis.unlink(key)
        why = Text("它在自己的数据流中写了不可能的编号", "it wrote impossible ids into its stream")
        self.quota.report(incoming.server_of(key), why)
        return False

    def _remove_what_is_no_stream(self, keys: Iterable[str]) -> bool:
        """One server that writes something else where its stream should be would keep us from all of them."""
        pipeline, names = self.redis.pipeline(transaction=False), list(keys)
        for name in names:
            pipeline.type(name)
        wrong = [name for name, kind in zip(names, pipeline.execute(), strict=True) if kind not in (b"stream", b"none")]
        for name in wrong:
            self.redis.unlink(name)
            why = Text("它把别的东西写在了自己的数据流的位置", "it wrote something else where its stream should be")
            self.quota.report(incoming.server_of(name.encode()), why)
        return bool(wrong)

    def _read_beats(self, at: float) -> None:
        for _ in range(BEATS_A_TICK):  # a server that beats without end must not keep us from the others
            message = self.beats.get_message(timeout=0.0)
            if message is None:
                return
            pk = incoming.server_of(message["channel"])
            if self._beats_too_much(pk, len(message["data"])):
                continue
            self.telemetry.beat(pk, at)
            said = incoming.beat(message["data"])
            self.telemetry.clock(pk, said.get("t"), at)
            self.active[pk] = incoming.active(said)
            self.telemetry.speaks(pk, readings.agent(said))
            self.workers[pk] = json.dumps([round(at, 3), said.get("worker") is True])
            counted = refusals.read(said)
            if counted is not None and counted != self.counted.get(pk):
                self.counts[pk] = counted
            if pk in self.telemetry.servers:
                self.hosts.hear(pk, said.get("host"), self._turn_at)
            answers = orders.read_answers(said.get("orders"))
            if answers and answers != self.answered.get(pk):
                self.answers[pk] = answers

    def _beats_too_much(self, pk: int, size: int) -> bool:
        """Messages leave no key behind, so no quota finds them: who sends without end is found here."""
        count, total = self.beaten.get(pk, (0, 0))
        self.beaten[pk] = count, total = count + 1, total + size
        if count <= BEATS_A_PERIOD and total <= BEAT_BYTES_A_PERIOD:
            return False
        if (count - 1) % BEATS_A_PERIOD == 0 or total - size <= BEAT_BYTES_A_PERIOD:
            self.quota.report(pk, Text("它不停地发送心跳消息", "it sent beats without end"))
        return True

    def _note_answers(self) -> None:
        if not self.answers:
            return
        known = {pk: answers for pk, answers in self.answers.items() if pk in self.telemetry.servers}
        orders.take_answers(known)
        self.answered |= known
        self.answers.clear()

    def _note_refusals(self) -> None:
        if self.counts:
            refusals.note(self.counts)
            self.counted |= self.counts
            self.counts = {}

    def _read_logs(self) -> None:
        """Store what came, then trim, acknowledge and publish, in this order: a trimmed entry is stored, an
        acknowledged one is trimmed, a published one is acknowledged."""
        keys = {streams.logs(pk): cursor for pk, cursor in self.log_cursors.items()}
        batch = {incoming.server_of(key): incoming.fields_of(entries) for key, entries in self._read(keys, LOGS_A_READ)}
        batch = {pk: entries for pk, entries in batch.items() if entries and pk in self.log_cursors}
        for portion in incoming.portions(batch, ENTRIES_A_STORE):
            self._store_logs(portion)

    def _store_logs(self, batch: jobs_ingest.Batch) -> None:
        stored = self._stored(batch)
        pipeline = self.redis.pipeline(transaction=False)
        for pk, entries in batch.items():
            last = entries[-1][0].decode()
            self.log_cursors[pk] = last
            pipeline.xtrim(streams.logs(pk), minid=incoming.after(last), approximate=False)
        pipeline.execute()
        pipeline = self.redis.pipeline(transaction=False)
        for (pk, attempt), place in stored.acked.items():
            pipeline.hset(streams.acked(pk), attempt, json.dumps(place))
        pipeline.execute(raise_on_error=False)  # a full Redis refuses HSET; the server asks again by sending again
        ended = [job for job in stored.jobs.values() if job.is_ended]
        self.diagnosing.take(chunk for _job, chunk in stored.chunks)
        self.diagnosing.take_engines((piece, chunk) for _replica, piece, chunk in stored.engines)
        self.diagnosing.settle(ended, stored.pieces.values())  # before pages hear of the end: they show why
        self._publish(self.heads.news(stored))
        self._after_ends(ended)

    def _after_ends(self, ended: list[Job]) -> None:
        """What waited for these jobs goes on; should we die before that, the next sweep does it."""
        jobs.release({job.server_id for job in ended})
        batches.advance_all({job.batch_id for job in ended if job.batch_id is not None})

    def _stored(self, batch: jobs_ingest.Batch) -> jobs_ingest.Stored:
        """The batch stored; should one server's entries break that, each server's alone, and theirs one by one."""
        try:
            return jobs_ingest.store(batch)
        except OperationalError:
            raise  # the database is away, or busy: not the entries' fault
        except Exception:
            size = sum(map(len, batch.values()))
            log.exception("%s log entries of %s servers could not be stored", size, len(batch))
            if size == 1:
                return jobs_ingest.skip(batch)
        done = jobs_ingest.Stored()
        for part in incoming.portions(batch, 1) if len(batch) == 1 else ({pk: batch[pk]} for pk in batch):
            done.add(self._stored(part))
        return done

    def _read_telemetry(self, at: float) -> Messages:
        keys = {streams.telemetry(pk): cursor for pk, cursor in self.telemetry_cursors.items()}
        messages: Messages = []
        for key, entries in self._read(keys, TELEMETRY_A_READ):
            pk = incoming.server_of(key)
            for entry_id, fields in incoming.fields_of(entries):
                self.telemetry_cursors[pk] = entry_id.decode()
                sent = int(entry_id.split(b"-")[0]) / 1000  # Redis's clock at XADD, so a backlog keeps its times
                self.lag_ms = max(self.lag_ms, (at - sent) * 1000)
                messages += self.telemetry.take(pk, fields.get(b"d", b""), min(at, sent))
        return messages

    def _each_second(self, at: float) -> Messages:
        channels = self.redis.pubsub_channels(streams.live("*"))
        self.telemetry.open_topics = {channel.decode()[len(streams.LIVE) :] for channel in channels}
        pipeline = self.redis.pipeline(transaction=False)
        messages = self.telemetry.each_second(pipeline, at)
        if self.workers:
            pipeline.hset(streams.FLEET_BEATS, mapping={str(pk): said for pk, said in self.workers.items()})
            self.workers = {}
        pipeline.set(streams.INGEST_ALIVE, json.dumps({"t": at, "lag_ms": round(self.lag_ms, 1)}), ex=60)
        pipeline.execute(raise_on_error=False)
        join_news.watch(self.telemetry.open_topics)
        self.lag_ms = 0.0
        return messages + self.heads.messages(self.telemetry.open_topics)

    def _judge_silence(self, at: float, monotonic: float) -> None:
        if self._is_due("listen", monotonic, float("inf")):
            self.silence.begin(self.redis, self.telemetry.servers.values(), monotonic)
        heard = self.telemetry.last_heard
        self.silence.judge(self.redis, self.telemetry.servers, heard, monotonic, at, reaper.restarting())

    def _each_five_seconds(self, monotonic: float) -> None:
        self.telemetry.flush()
        self.beaten.clear()
        active, self.active = self.active, {}
        reaper.bring_back(active)
        # Doubt ourselves first: silence counts only while we ourselves were listening.
        if monotonic - self._reading_since > settings.OFFLINE_AFTER_S:
            silent = self.telemetry.silent_since(monotonic - settings.OFFLINE_AFTER_S)
            reaper.mark_lost(pk for pk in silent if not self.silence.doubts(self.telemetry.servers.get(pk)))
        reaper.resend(timezone.now())
        reaper.give_up(timezone.now(), self.unanswered)  # before the next: what is pushed again has to be taken first
        reaper.resend_cancels(timezone.now())
        self.hosts.settle(monotonic)
        orders.look_after(timezone.now())
        rotation.look_after()
        self._note_refusals()
        jobs.release(waiting.servers_with_room())
        switches.settle_drains()
        lifecycle.finish_leaving()
        batches.advance_all(batches.under_way())
        campaigns.expire(timezone.now())
        approving.expire(timezone.now())
        reconcile.sweep()

    def _publish(self, messages: Iterable[tuple[str, bytes]]) -> None:
        pipeline = self.redis.pipeline(transaction=False)
        count = 0
        for channel, data in messages:
            pipeline.publish(channel, data)
            count += 1
        if count:
            pipeline.execute()
