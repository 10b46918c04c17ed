"""Judges silence: when many servers fall silent in one window, the console doubts itself before it doubts them.

On: more than DOUBT_SHARE of those heard lately, and at least LEAST servers, fell silent within WINDOW_S. Off: at most
OFF_SHARE of them are silent, for CALM_S without a break; or an administrator says that they are really down, and then
these count no more until they are heard again. So neither a flapping switch nor a slow return makes it flap.

While it is on, `batches` begin no wave and `reaper` declares no job lost: both would act on silence. Jobs that wait on
servers that are heard still start: somebody asked for them, and they depend on that one server alone. Nothing is
undone, and what was frozen happens within five seconds after the end, on the facts of then.
"""

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from console import alerts, doubt, streams
from console.doubt import Doubt
from deployments.models import Server
from deployments.steps import Text

log = logging.getLogger(__name__)

WINDOW_S = 60.0
LEAST = 3
OFF_SHARE = 0.1
CALM_S = 60.0
LATELY_S = 3600.0  # who was heard so long before we began is expected to be heard
ALERT = "fleet-silent"


@dataclass
class Group:
    """The real servers, or the simulated ones. Times are monotonic seconds."""

    simulated: bool
    on: Doubt | None = None
    calm_since: float | None = None
    fallen: set[int] = field(default_factory=set)  # all that fell silent in this doubt
    accepted: set[int] = field(default_factory=set)  # an administrator knows that they are down

    def judge(self, ages: Mapping[int, float], now: float, at: float) -> None:
        """`ages`: seconds since each server of the group was heard. `at` is the wall clock."""
        silent = {pk for pk, age in ages.items() if age > settings.SILENT_AFTER_S}
        self.accepted &= silent
        silent -= self.accepted
        if self.on is None:
            self._maybe_begin(ages, silent, at)
            return
        self.fallen = (self.fallen & ages.keys()) | silent
        of = max(1, len(ages) - len(self.accepted))
        self.on = Doubt(self.simulated, self.on.since, len(silent), of, tuple(sorted(self.fallen)))
        if len(silent) > OFF_SHARE * of:
            self.calm_since = None
        elif self.calm_since is None:
            self.calm_since = now
        elif now - self.calm_since >= CALM_S:
            self.end()

    def _maybe_begin(self, ages: Mapping[int, float], silent: set[int], at: float) -> None:
        lately = settings.SILENT_AFTER_S + WINDOW_S
        fresh = {pk for pk, age in ages.items() if age <= lately and pk not in self.accepted}
        fell = silent & fresh
        if len(fell) >= LEAST and len(fell) > settings.DOUBT_SHARE * len(fresh):
            self.fallen, self.calm_since = set(silent), None
            of = max(1, len(ages) - len(self.accepted))
            self.on = Doubt(self.simulated, at, len(silent), of, tuple(sorted(silent)))

    def end(self) -> None:
        self.on, self.calm_since, self.fallen = None, None, set()


class Silence:
    """One in the ingest process, asked once a second."""

    def __init__(self) -> None:
        self.groups = {simulated: Group(simulated) for simulated in (False, True)}
        self.written: list[Doubt] | None = None
        self.expected: dict[int, float] = {}

    def begin(self, connection: Any, servers: Iterable[Server], now: float) -> None:
        """We listen (again) from `now` on (monotonic): take up what was doubted before. Raises redis.RedisError."""
        before = {one.simulated: one for one in doubt.parse(connection.get(streams.DOUBT))}
        for simulated, group in self.groups.items():
            group.calm_since = None
            if found := before.get(simulated):  # else a Redis that began anew has forgotten what we know
                group.on, group.fallen = found, set(found.ids)
        self.written = list(before.values())
        limit = time.time() - LATELY_S
        self.expected = {
            server.pk: now for server in servers if server.last_seen_at and server.last_seen_at.timestamp() > limit
        }

    def judge(
        self,
        connection: Any,
        servers: Mapping[int, Server],
        heard: Mapping[int, float],
        now: float,
        at: float,
        restarting: Collection[int] = (),
    ) -> None:
        """`heard`: when each was heard last (monotonic). `restarting`: ids whose silence a job has brought about.

        Raises redis.RedisError, DatabaseError.
        """
        ended_by = connection.getdel(streams.DOUBT_ENDED) if self.is_on else None
        for simulated, group in self.groups.items():
            ages = {}
            for pk, server in servers.items():
                last = max(heard.get(pk, 0.0), self.expected.get(pk, 0.0))
                if server.simulated == simulated and last and pk not in restarting and not _is_excused(server):
                    ages[pk] = now - last
            if ended_by and group.on:
                group.accepted |= {pk for pk, age in ages.items() if age > settings.SILENT_AFTER_S}
                group.end()
            group.judge(ages, now, at)
        self._tell(connection)

    @property
    def is_on(self) -> bool:
        return any(group.on for group in self.groups.values())

    def doubts(self, server: Server | None) -> bool:
        """Whether silence of this server (None: one that is gone) says nothing about it."""
        return server is not None and self.groups[server.simulated].on is not None

    def _tell(self, connection: Any) -> None:
        now = [group.on for group in self.groups.values() if group.on]
        if now == self.written:
            return
        doubt.write(connection, now)
        for simulated in (False, True):
            _alert(simulated, _of(self.written or [], simulated), _of(now, simulated))
        self.written = now


def _of(doubts: Iterable[Doubt], simulated: bool) -> Doubt | None:
    return next((one for one in doubts if one.simulated == simulated), None)


def _is_excused(server: Server) -> bool:
    return server.maintenance or server.cut_off_at is not None


def _alert(simulated: bool, before: Doubt | None, now: Doubt | None) -> None:
    """One for all of them, instead of one for each; it tells how many there are at most."""
    subject = "simulated" if simulated else ""
    if before and not now:
        log.warning("doubt is over (%s)", subject or "real servers")
        alerts.resolve(ALERT, subject)
    elif now and (not before or now.silent > before.silent):
        if not before:
            log.warning("doubt: %s of %s servers fell silent (%s)", now.silent, now.of, subject or "real servers")
        kind = Text("台模拟服务器" if simulated else "台服务器", "simulated servers" if simulated else "servers")
        alerts.fire(
            ALERT,
            subject,
            what=Text(
                f"{now.of} {kind.zh}中有 {now.silent} 台几乎同时失联，控制台先怀疑自己或网络",
                f"{now.silent} of {now.of} {kind.en} fell silent at once: the console suspects itself or the network",
            ),
            do=Text(
                "检查控制台所在的网络、Redis 与交换机。自动动作已冻结，恢复后自动解除；"
                "若确认它们真的停机，由管理员解除。",
                "Look at the network of the console, its Redis and the switches. Automatic actions stand still and go "
                "on by themselves when the servers are back; where they are really down, an administrator ends this.",
            ),
            severity="warning" if simulated else "critical",
            link="/",
        )
