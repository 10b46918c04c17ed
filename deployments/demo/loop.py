"""The whole demo fleet in one process and one thread: a sample of each server when it is due, lines, beats, queues."""

import heapq
import time
from pathlib import Path
from typing import Any

import redis

from deployments.agent import keys
from deployments.agent.config import Config
from deployments.agent.link import BEAT_S, MAX_SAMPLES, BackOff
from deployments.demo import root
from deployments.demo.member import Member

FULL_RATE = 1000  # servers that are sampled every second; more share the same work, each more rarely
TICK_S, BUSY_TICK_S = 0.05, 0.02
MAX_WORKERS = 3
QUEUE_S = 0.25
MANY, CROWDED_S = 20, 0.1  # with more busy servers than that each is looked after so often, not at every turn


class Loop:
    """`turn` does what is due. Redis being away or full never raises; the fleet is silent then, like real servers."""

    def __init__(self, configs: list[Config], connection: Any, folder: Path) -> None:
        tools = folder / "bin"
        root.write_tools(tools)
        self.redis = connection
        self.members = [Member(config, connection, tools) for config in configs]
        self.interval_s = max(1.0, len(self.members) / FULL_RATE)
        self.queue_s = QUEUE_S if len(self.members) <= 200 else 2 * QUEUE_S
        self.queue_at = 0.0
        self.samples, self.queues = BackOff("samples of the demo"), BackOff("queues of the demo")
        now, count = time.monotonic(), max(1, len(self.members))
        self.due = [(now + self.interval_s * place / count, place) for place in range(count) if self.members]
        self.beats = [(now + BEAT_S * place / count, place) for place in range(count) if self.members]
        for member in self.members:
            member.look_gone(time.time())
            if member.config.attempts.exists():  # jobs of an earlier start go on
                member.prepare()

    def turn(self) -> float:
        """One round; seconds until the next."""
        now = time.monotonic()
        self._sample(now)
        self._beat(now)
        busy = [member for member in self.members if member.is_busy]
        for member in busy:
            if len(busy) > MANY and now < member.next_at:
                continue
            member.next_at = now + CROWDED_S
            member.look(now)
            if not member.is_silent(time.time()):
                member.link.tick()
        if now >= self.queue_at:
            self.queue_at = now + self.queue_s
            self._watch_queues(now)
        return BUSY_TICK_S if busy else TICK_S

    def _sample(self, now: float) -> None:
        """The samples that are due, in one trip."""
        pipe, t = self.redis.pipeline(transaction=False), time.time()
        while self.due and self.due[0][0] <= now:
            at, place = self.due[0]
            # A machine that was asleep or overloaded does not catch up.
            heapq.heapreplace(self.due, (max(at + self.interval_s, now), place))
            member = self.members[place]
            if not member.is_silent(t) and not self.samples.is_waiting(now):
                for message in member.messages(t):
                    pipe.xadd(
                        keys.telemetry(member.config.prefix), {"d": message}, maxlen=MAX_SAMPLES, approximate=True
                    )
        if len(pipe):
            self._try(self.samples, pipe)

    def _beat(self, now: float) -> None:
        """Beats, and lines of attempts that nobody looked at: `Link.tick` knows what is due."""
        while self.beats and self.beats[0][0] <= now:
            at, place = self.beats[0]
            heapq.heapreplace(self.beats, (max(at + BEAT_S, now), place))
            self.members[place].look_gone(time.time())
            if not self.members[place].is_silent(time.time()):
                self.members[place].link.tick()

    def _watch_queues(self, now: float) -> None:
        """Start a worker where a queue is not empty, at most MAX_WORKERS at once."""
        free = MAX_WORKERS - sum(member.worker is not None for member in self.members)
        if free <= 0 or self.queues.is_waiting(now):
            return
        t = time.time()
        asked = [member for member in self.members if member.worker is None and not member.is_silent(t)]
        pipe = self.redis.pipeline(transaction=False)
        for member in asked:
            pipe.llen(f"{keys.rq_prefix(member.config.prefix)}:queue:{keys.QUEUE}")
        lengths = self._try(self.queues, pipe) or []
        for member, length in zip(asked, lengths, strict=False):
            if isinstance(length, int) and length and free > 0:
                free -= 1
                member.start_worker()

    def _try(self, back_off: BackOff, pipe: Any) -> list[Any] | None:
        """The answers, None when Redis is away or full."""
        try:
            answers: list[Any] = pipe.execute(raise_on_error=False)
            problem = next((answer for answer in answers if isinstance(answer, redis.RedisError)), None)
        except redis.RedisError as error:
            answers, problem = [], error
        if problem is not None:
            back_off.failed(time.monotonic(), problem)
            return None
        back_off.worked()
        return answers
