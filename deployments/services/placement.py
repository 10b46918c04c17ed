"""Where a deployment's replicas may run now: facts of every server, promises, live readings, and the ranking of
deployments/serving/placing.py. A fixed number of queries and one read of Redis, whatever the number of servers."""

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson
import redis
from django.conf import settings
from django.db.models import TextField
from django.db.models.functions import Cast
from django.utils.translation import gettext as _

from console import streams
from console.errors import Conflict, Invalid
from console.language import pick
from console.redis import client
from deployments import kinds
from deployments.models import GONE, Artifact, ArtifactPlace, Deployment, Npu, Replica, Server, Spread
from deployments.services import model_limits, reserved, stacks, waiting
from deployments.services.placement_facts import Known, known
from deployments.serving import placing
from deployments.serving import placing_words as words
from deployments.serving.placing import Ask, Candidate
from deployments.serving.settings import Settings, npus
from deployments.stacks.catalogue import Catalogue
from deployments.steps import Text

MB = 2**20
ENGINE_MB = 3072  # what an engine on CPU takes beside weights and cache
COLUMNS = (
    "pk", "name", "rack", "simulated", "family", "last_seen_at", "maintenance", "queue_paused", "draining",
    "quarantine", "leaving_at", "cordons",
)  # fmt: skip


def look(
    wanted: Settings, artifact: Artifact | None, *, servers: Collection[str] | None = None,
    spread: str = Spread.RACKS.value, deployment: Deployment | None = None,
) -> list[Candidate]:  # fmt: skip
    """Every server, the best first, each with why it is one or why it is not. Raises Conflict, Invalid."""
    ask = _ask(wanted, artifact, servers, spread)
    return placing.rank(gather(artifact, deployment), ask)


def choose(
    wanted: Settings, artifact: Artifact | None, *, count: int, servers: Collection[str] | None = None,
    spread: str = Spread.RACKS.value, deployment: Deployment | None = None,
) -> list[Candidate]:  # fmt: skip
    """Places for `count` more replicas, one after the other; fewer where there is not room for all. Nothing is promised
    by it: reservations.take does that, and may find that somebody was faster. Raises Conflict, Invalid."""
    ask = _ask(wanted, artifact, servers, spread)
    return placing.choose(gather(artifact, deployment), ask, count)


def _ask(wanted: Settings, artifact: Artifact | None, servers: Collection[str] | None, spread: str) -> Ask:
    if artifact is None:
        raise Conflict(
            _("The model of this revision is no more."),
            _("Choose another model in a new revision."),
            code="no_artifact",
        )
    if spread not in Spread.values:
        raise Invalid(
            _("“%(spread)s” is no way to spread replicas.") % {"spread": spread[:20]},
            _("Use one of: %(words)s.") % {"words": ", ".join(Spread.values)},
            code="bad_spread",
        )
    every = npus(wanted)
    if every % wanted.nodes:
        raise Invalid(
            _("%(npus)s NPUs cannot be shared evenly by %(nodes)s servers.") % {"npus": every, "nodes": wanted.nodes},
            _("Change the parallel sizes, or the number of servers."),
            code="uneven",
        )
    return Ask(
        npus=every // wanted.nodes,
        simulated=artifact.simulated,
        device=wanted.device,
        route=wanted.route,
        nodes=wanted.nodes,
        spread=spread,
        allowed=frozenset(servers) if servers else None,
        hbm_mb=model_limits.least_hbm_mb(wanted, artifact),
        loads=model_limits.loads(artifact, wanted.dtype, stacks.catalogue()),
        needed_mb=artifact.bytes / MB + 1024 * (wanted.kv_cache_gib or 1) + ENGINE_MB,
        accepted=settings.ACCEPTED_FAULT_CODES,
        silent_after_s=settings.SILENT_AFTER_S,
    )


# ---------- what is so now ----------


def gather(artifact: Artifact | None, deployment: Deployment | None = None) -> list[placing.Server]:
    """Every server of the fleet as placement sees it, by number. Six queries and one read of Redis."""
    rows = (
        Server.objects.present().order_by("pk").annotate(text=Cast("facts", TextField())).values_list(*COLUMNS, "text")
    )
    listed = [dict(zip((*COLUMNS, "text"), row, strict=True)) for row in rows]
    pks = [row["pk"] for row in listed]
    now, held, locks = _nows(), reserved.on_servers(), _locks(pks)
    places, replicas, lost = _places(artifact), _replicas(deployment), _rows_of_npus()
    at, catalogue = time.time(), stacks.catalogue()
    return [
        _server(row, catalogue, now.get(row["pk"]), at, held.get(row["pk"], {}), locks.get(row["pk"], []),
                places.get(row["pk"]), replicas[row["pk"]], lost.get(row["pk"], []))
        for row in listed
    ]  # fmt: skip


def _nows() -> dict[int, dict[str, Any]]:
    """{server id: its newest reading, as ingest keeps it}; {} without Redis: then every server counts as silent."""
    try:
        kept = client().hgetall(streams.FLEET_NOW)
    except redis.RedisError:
        return {}
    return {int(pk): orjson.loads(data) for pk, data in kept.items()}


def _locks(servers: Iterable[int]) -> dict[int, list[tuple[str, Text]]]:
    """{server id: [(NPU that a job holds or waits for, the job in words)]}."""
    found: dict[int, list[tuple[str, Text]]] = defaultdict(list)
    for pk, jobs in waiting.on_servers(servers).items():
        for job in jobs:
            for lock in job.locks:
                if lock.startswith(waiting.NPU_LOCK):
                    name = lock[len(waiting.NPU_LOCK) :]
                    found[pk].append((name, words.locked(job.pk, Text(*kinds.title(job.kind)))))
    return found


def _places(artifact: Artifact | None) -> dict[int, tuple[str, bool]]:
    """{server id: (path, whether the copy is whole)}; a whole one before any other."""
    if artifact is None:
        return {}
    rows = ArtifactPlace.objects.filter(artifact=artifact, gone_at=None).order_by("path")
    found: dict[int, tuple[str, bool]] = {}
    for server, path, problems in rows.values_list("server_id", "path", "problems"):
        if server not in found or (not problems and not found[server][1]):
            found[server] = (path, not problems)
    return found


def _replicas(deployment: Deployment | None) -> Counter[int]:
    if deployment is None:
        return Counter()
    rows = Replica.objects.filter(deployment=deployment).exclude(state__in=GONE).order_by()
    return Counter(rows.values_list("server_id", flat=True))


def _rows_of_npus() -> dict[int, list[tuple[int, int, str | None, str]]]:
    found: dict[int, list[tuple[int, int, str | None, str]]] = defaultdict(list)
    rows = Npu.objects.order_by().values_list("server_id", "npu_id", "chip_id", "bus_id", "name")
    for server, npu, chip, bus_id, name in rows.iterator(chunk_size=5000):
        found[server].append((npu, chip, bus_id, name))
    return found


def _server(
    row: Mapping[str, Any], catalogue: Catalogue, now: Mapping[str, Any] | None, at: float,
    held: Mapping[str, reserved.Held],
    locks: Sequence[tuple[str, Text]], place: tuple[str, bool] | None, replicas: int,
    rows: Sequence[tuple[int, int, str | None, str]],
) -> placing.Server:  # fmt: skip
    now = now or {}
    shown = now.get("npus") or []
    told = tuple([(one.get("npu"), one.get("chip")) for one in shown])
    facts = known(catalogue, row["pk"], row["text"], row["family"], told)
    host = now.get("host") or {}
    total, used = host.get("mem_total_mb"), host.get("mem_used_mb")
    seen = now.get("seen")
    return placing.Server(
        pk=row["pk"], name=row["name"], rack=row["rack"], simulated=row["simulated"],
        silent_s=None if seen is None else max(0.0, at - seen),
        mark=_mark(row), error=bool(now.get("error")), kubernetes=facts.kubernetes,
        npus=_npus(now, facts, held, locks, row["cordons"], rows), linked=facts.groups is not None,
        family=facts.family, stack=facts.stack, stack_kind=facts.kind, families=facts.families,
        catalogued=facts.stack in catalogue.stacks,
        containers=facts.containers, path=place[0] if place and place[1] else "", broken=bool(place and not place[1]),
        free_mb=total - used if total is not None and used is not None else None,
        cores=host.get("cpus"), replicas=replicas,
    )  # fmt: skip


def _mark(row: Mapping[str, Any]) -> str:
    signs = (
        ("leaving", row["leaving_at"]), ("quarantine", row["quarantine"]), ("paused", row["queue_paused"]),
        ("draining", row["draining"]), ("maintenance", row["maintenance"]),
    )  # fmt: skip
    return next((name for name, there in signs if there), "")


def _npus(
    now: Mapping[str, Any], facts: Known, held: Mapping[str, reserved.Held], locks: Sequence[tuple[str, Text]],
    cordons: Mapping[str, Any], rows: Sequence[tuple[int, int, str | None, str]],
) -> tuple[placing.Npu, ...]:  # fmt: skip
    """Those of the newest reading in its order, then those that are known of old and were not in it."""
    shown = now.get("npus") or []
    running: dict[tuple[Any, Any], list[placing.Process]] = defaultdict(list)
    for process in now.get("processes") or ():
        running[process.get("npu"), process.get("chip")].append(_process(process))
    buses = Counter(one.get("bus_id") for one in shown)
    promised = {name: holder.words() for name, holder in held.items()} if held else {}
    made, seen = [], set()
    for index, one in enumerate(shown):
        bus_id, chip = one.get("bus_id"), one.get("chip")
        name = "" if not bus_id else f"{bus_id}/{chip or 0}" if buses[bus_id] > 1 else bus_id
        seen.add((one.get("npu"), chip or 0))
        there = running.get((one.get("npu"), chip)) if running else None
        cordon = cordons.get(bus_id.upper()) if cordons and bus_id else None
        made.append(
            placing.Npu(
                name, one.get("name") or "", True, one.get("health"), tuple(one.get("codes") or ()),
                one.get("hbm_used_mb"), tuple(there) if there else (),
                _of(promised.items(), name) if promised else None, cordon and str(cordon.get("reason") or "—"),
                _of(locks, name) if locks else None,
                facts.groups[index] if facts.groups else 0, facts.cpus[index],
                one.get("hbm_total_mb") or None,
            )
        )  # fmt: skip
    lost = [row for row in rows if (row[0], row[1]) not in seen]
    return (*made, *(placing.Npu(bus_id or "", chip, shown=False) for _n, _c, bus_id, chip in lost))


def _process(process: Mapping[str, Any]) -> placing.Process:
    who = " ".join(str(process[name]) for name in ("user", "name") if process.get(name))
    return placing.Process(
        who or f"pid {process.get('pid')}", str(process.get("attempt") or ""), bool(process.get("pod"))
    )


def _of(pairs: Iterable[tuple[str, Text]], name: str) -> Text | None:
    return next((text for other, text in pairs if name and reserved.covers(other, name)), None)


# ---------- JSON ----------


def as_json(one: Candidate) -> dict[str, Any]:
    return {
        "server": one.server,
        "fits": one.fits,
        "npus": list(one.npus),
        "free_npus": one.free,
        "path": one.path or None,
        "why": [pick(text) for text in one.why],
        "why_not": [pick(text) for text in one.why_not],
        "codes": list(one.codes),
        "nodes": [{"server": node.server, "npus": list(node.npus), "path": node.path} for node in one.nodes],
    }
