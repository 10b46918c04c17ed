"""Samples into live state, messages and rows. One instance in the ingest process; no thread but its own."""

import json
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from math import inf
from typing import Any

from django.db import OperationalError, transaction
from django.urls import reverse

from console import alerts, live, streams, untrusted
from deployments.models import Npu, Server, ServerChange
from deployments.row_locks import hold_servers
from deployments.services import external_engines, external_live, gateway_heard, replica_live
from monitoring import history
from monitoring.models import Minute
from monitoring.services import cards, facts_history, fleet_steps, live_state, readings

Messages = list[tuple[str, bytes]]


class Telemetry:
    """Live state of all servers in memory. `seen` is the console's clock at receipt, seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self.servers: dict[int, Server] = {}
        self.nows: dict[int, live_state.Now] = {}
        self.changed: set[int] = set()
        self.has_news = False  # a server that counts as offline was heard
        self.heard: dict[int, float] = {}  # to be written at the next flush
        self.last_heard: dict[int, float] = {}  # monotonic: jumps of the wall clock lose no server
        self.open_topics: set[str] = set()
        self.steps = fleet_steps.FleetSteps()
        self._rows: dict[int, list[float | None]] = {}
        self._states: dict[int, tuple[Any, ...]] = {}
        self._minutes: dict[int, tuple[datetime, history.Sums]] = {}
        self._ready_minutes: list[Minute] = []
        self._inventory: dict[int, tuple[Any, ...]] = {}
        self._new_inventory: set[int] = set()
        self._facts: dict[int, tuple[dict[str, Any], float]] = {}
        self._same_facts: dict[int, tuple[str, float]] = {}
        self._offsets: dict[int, float] = {}
        self._agents: dict[int, readings.Agent] = {}
        self.engines = replica_live.Live()
        self.others = external_live.Live()
        self.held: live_state.Promises = {}
        self._told_engines: dict[int, external_engines.Listing] = {}
        self._new_engines: dict[int, external_engines.Listing] = {}
        self._gateways: dict[int, tuple[list[Any], float]] = {}

    def know(self, servers: Iterable[Server], held: live_state.Promises | None = None) -> None:
        """The servers as the database has them now, and whom their NPUs are promised to. Those that are gone are
        forgotten."""
        self.servers = {server.pk: server for server in servers}
        self.held = held or {}
        self.others.know(self.nows.keys() - self.servers.keys())
        for gone in self.nows.keys() - self.servers.keys():
            for kept in (
                self.nows,
                self._rows,
                self._states,
                self._minutes,
                self._inventory,
                self.heard,
                self._told_engines,
            ):
                kept.pop(gone, None)
            self.changed.add(gone)
        for pk, server in self.servers.items():
            if pk not in self.nows:
                self.nows[pk] = live_state.unheard(server)
            elif not live_state.identity(server).items() <= self.nows[pk].items():
                self.nows[pk].update(live_state.identity(server))
                self.changed.add(pk)
            if live_state.set_cordons(self.nows[pk], server, self.held.get(pk, {})):
                self.changed.add(pk)

    def take(self, server_id: int, data: bytes, received: float) -> Messages:
        """Take one telemetry entry; returns what is to be published at once."""
        server = self.servers.get(server_id)
        message = readings.read(data)
        if server is None or message is None:
            return []
        self._hear(server_id, received)
        if message["type"] == "facts":
            if same := readings.same_facts(message):
                self._same_facts[server_id] = (same, received)
            else:
                self._facts[server_id] = (readings.clean_facts(message), received)
            return []
        self.engines.take(server_id, message.get("engines"), received)
        if isinstance(message.get("gateways"), list):
            self._gateways[server_id] = (message["gateways"], received)
        sample = readings.clean_sample(message)
        before, held = self.nows.get(server_id), self.held.get(server_id, {})
        self._note_engines(server_id, message, received)
        if sample["error"] and not sample["npus"] and before:
            # Promise 8: a device that nobody can read now stays visible, as unreadable.
            sample["npus"], sample["processes"] = [], []
            now = live_state.build(server, sample, received)
            now["npus"] = [unreadable(npu) for npu in before["npus"]]
            live_state.set_cordons(now, server, held)
            now["family"] = before["family"]
        else:
            now = live_state.build(server, sample, received, held)
        self.nows[server_id] = now
        self.changed.add(server_id)
        self._add_to_minute(server_id, now, received)
        self._note_inventory(server_id, now)
        topic = f"server:{server_id}"
        return [live.message(topic, "sample", now, now["seq"] or 0)] if topic in self.open_topics else []

    def beat(self, server_id: int, received: float) -> None:
        if server_id in self.servers:
            self._hear(server_id, received)
            now = self.nows.get(server_id)
            if now is not None and not now["npus"] and now["seen"] is None:
                now["seen"] = received
                self.changed.add(server_id)

    def clock(self, server_id: int, said: Any, received: float) -> None:
        """Take the time in a beat, which is never kept back at the agent as a sample is. What made it late on its way
        to us makes the server seem behind: the latest one of a flush is the nearest to the truth."""
        sent = untrusted.number(said)
        if sent is not None and server_id in self.servers:
            self._offsets[server_id] = max(self._offsets.get(server_id, -inf), round(sent - received, 3))

    def speaks(self, server_id: int, agent: readings.Agent | None) -> None:
        """Take what a beat says of its agent; written where it is not what the row says."""
        server = self.servers.get(server_id)
        if server is None or agent is None:
            return
        if agent != (server.agent_version, server.agent_code, server.agent_protocol):
            self._agents[server_id] = agent
            self.has_news = True

    def _hear(self, server_id: int, received: float) -> None:
        self.heard[server_id] = received
        # Jobs may be queued as soon as the row says so: who just came back does not wait for the next flush.
        self.has_news |= self.servers[server_id].is_offline
        self.last_heard[server_id] = self.monotonic()

    def silent_since(self, monotonic: float) -> list[int]:
        """Ids of the servers not heard since then (time.monotonic(), seconds)."""
        return [pk for pk in self.servers if self.last_heard.get(pk, 0.0) < monotonic]

    def each_second(self, pipeline: Any, at: float) -> Messages:
        """Write the changed states into `pipeline`; returns the fleet's messages of this second."""
        heard = set(self.changed)
        if self.changed:
            fields = {
                str(pk): json.dumps(self.nows[pk], separators=(",", ":")) for pk in self.changed if pk in self.nows
            }
            if fields:
                pipeline.hset(streams.FLEET_NOW, mapping=fields)
            gone = [str(pk) for pk in self.changed if pk not in self.nows]
            if gone:
                pipeline.hdel(streams.FLEET_NOW, *gone)
            self.changed.clear()
        messages = self._fleet_steps(pipeline)
        messages += self._state_changes(at)
        messages += self.engines.each_second(pipeline, self.open_topics)
        self.others.each_second(pipeline)
        rows = self._rows_to_tell(at, heard)
        if rows and len(self.servers) <= 60:
            messages.append(live.message("fleet:rows", "rows", rows, int(at)))
        return messages

    def _fleet_steps(self, pipeline: Any) -> Messages:
        nows = [self.nows[pk] for pk in sorted(self.nows)]
        layout_changed, deltas = self.steps.advance(nows)
        made = []
        if layout_changed:
            made.append(live.message("fleet", "layout", {"gen": self.steps.generation}, 0))
        if layout_changed or deltas:
            full = {
                m: json.dumps({"gen": self.steps.generation, "steps": fleet_steps.letters(s)})
                for m, s in self.steps.steps.items()
            }
            pipeline.hset(streams.FLEET_STEPS, mapping=full)
        return made + [live.message(f"fleet:{metric}", "steps", data, 0) for metric, data in deltas.items()]

    def _state_changes(self, at: float) -> Messages:
        """One message for each server whose state, occupancy or health is not what was last told."""
        made = []
        for pk, now in self.nows.items():
            state = live_state.state_at(now, at)
            key = (state, bool(now["error"]), *((npu["occ"], npu["health"]) for npu in now["npus"]))
            if self._states.get(pk) == key:
                continue
            self._states[pk] = key
            npus = [[npu["occ"], live_state.is_faulty(npu)] for npu in now["npus"]]
            data = {"id": pk, "state": state, "seen": now["seen"], "npus": npus, "error": bool(now["error"])}
            made.append(live.message("fleet", "server", data, int(at)))
        return made

    def _rows_to_tell(self, at: float, heard: set[int]) -> dict[str, list[float | None]]:
        """Rows that changed, and those of servers just heard: a page tells by them how old its numbers are."""
        changed: dict[str, list[float | None]] = {}
        for pk, now in self.nows.items():
            fresh = live_state.state_at(now, at) in live_state.HEARD
            row: list[float | None] = summary(now["npus"]) if fresh else [None] * 4
            if pk in heard or self._rows.get(pk) != row:
                self._rows[pk] = changed[str(pk)] = row
        return changed

    def _add_to_minute(self, server_id: int, now: live_state.Now, received: float) -> None:
        minute = history.minute_of(received)
        kept = self._minutes.get(server_id)
        if kept is None or kept[0] != minute:
            if kept is not None:
                self._ready_minutes.append(Minute(server_id=server_id, at=kept[0], data=kept[1].data()))
            kept = self._minutes[server_id] = (minute, history.Sums())
        kept[1].add(now["npus"], self.engines.metrics_of(server_id, received))

    def _note_inventory(self, server_id: int, now: live_state.Now) -> None:
        if now["error"]:
            return
        seen = tuple((n["npu"], n["chip"], n["bus_id"], n["name"], n["hbm_total_mb"]) for n in now["npus"])
        if self._inventory.get(server_id) != seen:
            self._inventory[server_id] = seen
            self._new_inventory.add(server_id)

    def _note_engines(self, server_id: int, message: dict[str, Any], received: float) -> None:
        """What a sample says of engines that are not ours; it is written where it is not what was told before."""
        self.others.take(server_id, message.get("external"), received)
        told = external_engines.clean(message.get("external"))
        if told is not None and self._told_engines.get(server_id) != told:
            self._told_engines[server_id] = self._new_engines[server_id] = told

    def flush(self) -> None:
        """Write what became due into the database: last contact, minutes, facts, NPUs. One transaction."""
        self.has_news = False
        self._flush_gateways()
        minutes, self._ready_minutes = self._ready_minutes, []
        heard, self.heard = self.heard, {}
        offsets, self._offsets = self._offsets, {}
        facts, self._facts = self._facts, {}
        same, self._same_facts = self._same_facts, {}
        agents, self._agents = self._agents, {}
        fresh, self._new_inventory = self._new_inventory, set()
        self._flush_engines()
        if not (minutes or heard or facts or same or agents or fresh):
            return
        try:
            self._write(minutes, heard, offsets, facts, same, agents, fresh)
        except OperationalError:  # busy or away: the next flush writes it, and what is newer stays newer
            self._ready_minutes = minutes + self._ready_minutes
            self.heard, self._offsets = heard | self.heard, offsets | self._offsets
            self._facts, self._same_facts = facts | self._facts, same | self._same_facts
            self._agents, self._new_inventory = agents | self._agents, fresh | self._new_inventory
            raise

    def _flush_engines(self) -> None:
        news, self._new_engines = self._new_engines, {}
        try:
            external_engines.save({pk: told for pk, told in news.items() if pk in self.servers})
        except OperationalError:
            self._new_engines = news | self._new_engines
            raise

    def _flush_gateways(self) -> None:
        """What servers said last of their gateways. What cannot be written now they say again."""
        told, self._gateways = self._gateways, {}
        for pk, (rows, received) in sorted(told.items()):
            with transaction.atomic():
                gateway_heard.heard(pk, rows, received)

    @transaction.atomic
    def _write(
        self,
        minutes: list[Minute],
        heard: dict[int, float],
        offsets: dict[int, float],
        facts: dict[int, tuple[dict[str, Any], float]],
        same: dict[int, tuple[str, float]],
        agents: dict[int, readings.Agent],
        fresh: set[int],
    ) -> None:
        hold_servers({*heard, *facts, *same, *agents, *fresh})
        _save_contact(self.servers, heard, offsets)
        Minute.objects.bulk_create(minutes, ignore_conflicts=True)
        for pk, (value, at) in facts.items():
            _save_facts(pk, value, at)
        for pk, (digest, at) in same.items():
            found_at = datetime.fromtimestamp(at, UTC)
            Server.objects.filter(pk=pk, facts__digest=digest).update(facts_at=found_at)
        for pk, agent in agents.items():
            values = {f"agent_{name}": value for name, value in agent._asdict().items()}
            Server.objects.filter(pk=pk).update(**values)
        for pk in fresh & self.servers.keys():
            _save_npus(self.servers[pk], self.nows[pk])
        for pk in (facts.keys() | fresh) & self.servers.keys():
            _look_for_lost_cards(pk, self.nows[pk])


def unreadable(npu: dict[str, Any]) -> dict[str, Any]:
    """An NPU of which nothing is known now but that it was there."""
    unknown: dict[str, Any] = {
        "aicore": None,
        "hbm_used_mb": None,
        "temp_c": None,
        "power_w": None,
        "health": None,
        "codes": [],
    }
    return {**npu, **unknown, "occ": "unreadable"}


def summary(npus: list[dict[str, Any]]) -> list[float | None]:
    """[mean AI Core %, memory % over all NPUs, hottest °C, summed W]; None where nothing is known."""
    aicore = [n["aicore"] for n in npus if n["aicore"] is not None]
    known = [(n["hbm_used_mb"], n["hbm_total_mb"]) for n in npus if n["hbm_used_mb"] is not None and n["hbm_total_mb"]]
    temps = [n["temp_c"] for n in npus if n["temp_c"] is not None]
    watts = [n["power_w"] for n in npus if n["power_w"] is not None]
    total = sum(pair[1] for pair in known)
    return [
        round(sum(aicore) / len(aicore)) if aicore else None,
        round(100 * sum(pair[0] for pair in known) / total) if total else None,
        max(temps) if temps else None,
        round(sum(watts)) if watts else None,
    ]


def _save_contact(servers: dict[int, Server], heard: dict[int, float], offsets: dict[int, float]) -> None:
    rows = []
    for pk, at in heard.items():
        server = servers.get(pk)
        if server is None:
            continue
        server.last_seen_at = datetime.fromtimestamp(at, UTC)
        server.clock_offset_s = offsets.get(pk, server.clock_offset_s)
        rows.append(server)
    Server.objects.bulk_update(rows, ["last_seen_at", "clock_offset_s"], batch_size=200)


def _save_facts(pk: int, facts: dict[str, Any], at: float) -> None:
    """The facts with their history. While two hosts take turns, what differs is no change."""
    server = Server.objects.filter(pk=pk).only("pk", "facts", "hostname", "quarantine").first()
    if server is None:
        return
    if not server.quarantine:
        ServerChange.objects.bulk_create(facts_history.changes(server, facts))
    hostname = str(facts.get("hostname") or "")[:255]
    found_at = datetime.fromtimestamp(at, UTC)
    Server.objects.filter(pk=pk).update(facts=facts, facts_at=found_at, hostname=hostname)


def _look_for_lost_cards(pk: int, now: live_state.Now) -> None:
    """Fire or resolve the alert of a server; not before it has told both its cards and its NPUs."""
    server = Server.objects.filter(pk=pk).only("pk", "name", "facts").first()
    if server is None or now["error"] or not now["npus"]:
        return
    missing = cards.lost(server.facts, now)
    if not missing:
        alerts.resolve("card-lost", f"server:{pk}")
        return
    what, do = cards.alert_words(server.name, missing)
    link = reverse("monitoring:server-detail", args=[server.name])
    alerts.fire("card-lost", f"server:{pk}", what=what, do=do, link=link)


def _save_npus(server: Server, now: live_state.Now) -> None:
    """Rows of the NPUs as printed now; what is no longer printed keeps its row and its age."""
    seen_at = datetime.fromtimestamp(now["seen"] or time.time(), UTC)
    rows = [
        Npu(
            server=server, device_index=index, npu_id=npu["npu"], chip_id=npu["chip"] or 0,
            bus_id=(npu["bus_id"] or "")[:20] or None, name=(npu["name"] or "")[:40],
            memory_total_mb=npu["hbm_total_mb"], seen_at=seen_at,
        )
        for index, npu in enumerate(now["npus"])
        if isinstance(npu["npu"], int) and npu["npu"] >= 0
    ]  # fmt: skip
    unique = list({(row.npu_id, row.chip_id): row for row in rows}.values())
    Npu.objects.bulk_create(
        unique,
        update_conflicts=True,
        unique_fields=["server", "npu_id", "chip_id"],
        update_fields=["device_index", "bus_id", "name", "memory_total_mb", "seen_at"],
    )
    Server.objects.filter(pk=server.pk).update(family=now["family"][:40])
    server.family = now["family"][:40]
