"""Carries what this server has to say to Redis: lines of jobs, samples, and a beat every 5 s.

    python -m deployments.agent.link --config <config.json>

`Link` is one server's and does one round per `tick`, so that the demo runs many of them in one thread.
"""

import argparse
import dataclasses
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import redis

from deployments import locks
from deployments.agent import (
    PROTOCOL,
    VERSION,
    addresses,
    chosen,
    code,
    credentials,
    dispatch,
    identity,
    keys,
    orders,
    outbox,
    repoint,
    rotation,
    spool,
    tls_words,
    trust,
)
from deployments.agent.config import Config, Current, begin, spoken
from deployments.agent.engines import folder
from deployments.agent.gateways import obey
from deployments.agent.shipper import Shipper
from deployments.steps import Text

log = logging.getLogger("link")

BEAT_S = 5.0
LOOK_S = 1.0
BUSY_TICK_S = 0.02
IDLE_TICK_S = 0.05
PURGE_S = 3600.0
MAX_SAMPLES = 120  # in the stream
FIRST_BACK_OFF_S = 0.2
MAX_BACK_OFF_S = 5.0


class BackOff:
    """Waits longer after each failure in a row; says so once, and again where TLS turns out to be the reason."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pause = 0.0
        self.until = 0.0
        self.told = ""
        self.since: float | None = None  # when it began to fail

    def is_waiting(self, now: float) -> bool:
        return now < self.until

    def failed(self, now: float, error: Exception) -> None:
        code, words = tls_words.explain(error) or ("", None)
        if not self.pause:
            self.since = now
        if not self.pause or (code and code != self.told):
            self.told = code
            said = spoken(words) if words else error
            log.warning("%s: Redis does not take it (%s); kept here until it does", self.name, said)
        self.pause = min(max(self.pause * 2, FIRST_BACK_OFF_S), MAX_BACK_OFF_S)
        self.until = now + self.pause

    def worked(self) -> None:
        if self.pause:
            log.info("%s: Redis takes it again", self.name)
        self.pause = self.until = 0.0
        self.since, self.told = None, ""


class Link:
    """`tick` does what is due and returns the seconds until the next; Redis being away or full never raises.

    The parts fail apart: a full Redis refuses lines and samples, but takes the beat.
    """

    def __init__(
        self,
        config: Config,
        connection: Any,
        *,
        worker_alive: Callable[[], bool] | None = None,
        handlers: Mapping[str, orders.Handler] | None = None,
    ) -> None:
        self.config = config
        self.redis = connection
        self.shipper = Shipper(connection, config.prefix, config.attempts, config.logs)
        self.worker_alive = worker_alive or (lambda: locks.is_locked(config.state_dir / dispatch.WORKER_LOCK))
        self.host = identity.host(config.root)._asdict()
        self.refused = dispatch.Counts()  # orders that were not signed, since this process began
        self.orders = orders.Orders(config, connection, handlers or {}, self._refuse)
        self.orders_at = 0.0
        self.beats = 0
        self.samples = 0
        self.listeners = 0  # who took the last beat
        self.beat_at = 0.0
        self.purge_at = 0.0
        self.back_offs = {name: BackOff(name) for name in ("lines", "samples", "orders", "beat")}

    def tick(self) -> float:
        now = time.monotonic()
        self._try("lines", now, self.shipper.tick)
        self._try("samples", now, self._ship_samples)
        if now >= self.orders_at and self._try("orders", now, self._obey):
            self.orders_at = now + orders.LOOK_S
        if now >= self.beat_at and self._try("beat", now, self._beat):
            self.beat_at = now + BEAT_S
        return BUSY_TICK_S if self.shipper.is_busy else IDLE_TICK_S

    def _try(self, name: str, now: float, act: Callable[[], object]) -> bool:
        back_off = self.back_offs[name]
        if back_off.is_waiting(now):
            return False
        try:
            act()
        except redis.RedisError as error:
            back_off.failed(time.monotonic(), error)
            return False
        back_off.worked()
        return True

    def _ship_samples(self) -> None:
        for path in outbox.waiting(self.config.telemetry):
            try:
                data = path.read_bytes()
            except FileNotFoundError:  # the sampler keeps no more than the newest
                continue
            self.send_sample(data)
            self.samples += 1
            path.unlink(missing_ok=True)

    def send_sample(self, data: bytes) -> None:
        """Add one sample or facts message, as JSON, to the telemetry stream. Raises redis.RedisError."""
        self.redis.xadd(keys.telemetry(self.config.prefix), {"d": data}, maxlen=MAX_SAMPLES, approximate=True)

    def _obey(self) -> None:
        if self.orders.tick():
            self.beat_at = 0.0  # the console waits for the answer

    def _refuse(self, reason: str) -> None:
        self.refused.refused += 1
        self.refused.last_refusal = reason[:200]

    def _beat(self) -> None:
        counts = dispatch.read_counts(self.config)
        beat = {
            "t": round(time.time(), 3),
            "worker": self.worker_alive(),
            "seq": self.beats + 1,
            "active": self.shipper.active(),
            "agent": VERSION,
            "host": self.host,
            "code": code(),
            "protocol": PROTOCOL,
            "refused": counts.refused + self.refused.refused,
            "already": counts.already,
            "last_refusal": self.refused.last_refusal or counts.last_refusal,
            "orders": self.orders.answers(),
        }
        self.listeners = int(self.redis.publish(keys.beat(self.config.prefix), json.dumps(beat)))
        self.beats += 1
        sound = chosen.Sound(code(), self.beats, self.samples, bool(beat["worker"]))
        chosen.note_sound(self.config.state_dir, sound)
        if time.monotonic() >= self.purge_at:
            self.purge_at = time.monotonic() + PURGE_S
            spool.purge(self.config.attempts, float(self.redis.time()[0]))
            folder.purge(self.config.logs)
            folder.forget(self.config.state_dir)

    @property
    def away_s(self) -> float:
        """For how long Redis has not taken the beat, which it takes even when it is full."""
        since = self.back_offs["beat"].since
        return 0.0 if since is None else time.monotonic() - since

    def close(self) -> None:
        for track in self.shipper.tracks.values():
            track.reader.close()
        self.redis.close()


def connect(config: Config) -> "redis.Redis":
    return redis.Redis.from_url(
        credentials.without(config.redis_url),
        credential_provider=credentials.Provider(Current(config)),
        socket_timeout=10.0,
        socket_connect_timeout=5.0,
        socket_keepalive=True,
        retry=None,
        **config.redis_options,
    )


def reaches(url: str, ca: str = "") -> None:
    """Raises CannotObey where Redis at `url` does not take us; over TLS `ca` is trusted as well."""
    options = {"ssl_ca_data": ca} if ca and url.startswith("rediss://") else {}
    try:
        with redis.Redis.from_url(url, socket_timeout=5.0, socket_connect_timeout=5.0, retry=None, **options) as trial:
            trial.ping()
    except (redis.RedisError, OSError, ValueError) as error:
        raise orders.CannotObey(
            f"Redis 不接受新密码（{error}）", f"Redis does not take the new password ({error})"
        ) from error


def listeners(config: Config, address: str) -> int:
    """How many take our beat at that address. Raises CannotObey where Redis does not take us there."""
    there = dataclasses.replace(config, redis_url=addresses.with_user(config, address))
    provider = credentials.Provider(lambda: there)
    beat = {"t": round(time.time(), 3), "worker": locks.is_locked(config.state_dir / dispatch.WORKER_LOCK)}
    for left in (0,) if config.before is None else (1, 0):
        try:
            with redis.Redis.from_url(
                address,
                credential_provider=provider,
                socket_timeout=5.0,
                socket_connect_timeout=5.0,
                retry=None,
                **there.redis_options,
            ) as trial:
                return int(trial.publish(keys.beat(config.prefix), json.dumps(beat)))
        except redis.AuthenticationError as error:
            if not left:
                raise orders.CannotObey(
                    f"{address} 不接受这台服务器的密码，未作改动",
                    f"{address} does not take this server's password; nothing was changed",
                ) from error
        except (redis.RedisError, OSError, ValueError) as error:
            why = tls_words.explain(error)
            words = why[1] if why else Text(str(error), str(error))
            raise orders.CannotObey(
                f"连不到 {address}（{words.zh}），未作改动",
                f"{address} cannot be reached ({words.en}); nothing was changed",
            ) from error
    raise AssertionError("every pair was tried")


def main(argv: list[str] | None = None) -> int:
    _, config = begin(argparse.ArgumentParser(prog="deployments.agent.link"), argv)
    current = Current(config)
    rotating = rotation.Rotation(current, lambda url: reaches(url, current().redis_ca))
    handlers = {**rotating.handlers, **repoint.Repoint(current, listeners).handlers}
    handlers |= obey.Gateways(current).handlers
    follower = repoint.Follower(current, listeners)
    while True:
        own = current()
        connection = connect(own)
        link = Link(own, connection, handlers={**handlers, **trust.Trust(own, connection, listeners).handlers})
        _run(link, follower)
        link.close()


def _run(link: Link, follower: repoint.Follower) -> None:
    """Until another address is to be used."""
    look_at = 0.0
    while True:
        time.sleep(link.tick())
        if time.monotonic() < look_at:
            continue
        look_at = time.monotonic() + LOOK_S
        if chosen.is_orphan(link.config):
            log.warning("nobody watches this new code any more: back to the code before")
            os.kill(os.getppid(), signal.SIGTERM)
        if follower.turn(away_s=link.away_s, listeners=link.listeners, beats=link.beats):
            return


if __name__ == "__main__":
    sys.exit(main())
