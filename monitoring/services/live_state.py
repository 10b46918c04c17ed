"""The present state of servers: built by ingest from samples, read by pages and API.

The shape is called "now" (see `build`). It lies in the Redis hash `fleet:now`, one field a server;
where Redis is away, readers get what the database knows, marked as never live.
"""

import time
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
import redis
from django.conf import settings

from console import streams
from console.redis import client
from deployments.models import Server
from deployments.services import inventory, reserved
from deployments.serving import idle

Now = dict[str, Any]
Promises = dict[int, dict[str, dict[str, Any]]]  # {server id: {NPU: as reserved.Held.as_json}}

# The span of each metric that is shown as colour, in the metric's unit.
RANGES = {"aicore_pct": (0.0, 100.0), "hbm_pct": (0.0, 100.0), "temp_c": (20.0, 100.0), "power_w": (0.0, 500.0)}
METRICS = tuple(RANGES)
HEARD = ("live", "maintenance")  # states of a server whose last reading is valid now
# What the "now" of a server takes from its row: of a thousand of them, every column counts.
READ = (
    "name", "display_name", "simulated", "rack", "agent_version", "site", "labels", "quarantine", "draining",
    "drained_at", "cordons", "maintenance", "last_seen_at", "family",
)  # fmt: skip
STEPS = 16
UNKNOWN_STEP = STEPS


def build(
    server: Server, sample: Mapping[str, Any], seen: float, held: Mapping[str, Mapping[str, Any]] | None = None
) -> Now:
    """The "now" of a server after `sample`: {id, name, state, seen, simulated, family, rack, seq, took_ms, error,
    npus: [{npu, chip, bus_id, name, health, codes, aicore, hbm_used_mb, hbm_total_mb, temp_c, power_w, occ, held}],
    processes, host, version}. None stands for unknown. `seen` is the console's clock, seconds."""
    processes = sample.get("processes") or []
    by_chip: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for process in processes:
        by_chip.setdefault((process.get("npu"), process.get("chip")), []).append(process)
    npus = [npu_now(npu, by_chip.get((npu.get("npu"), npu.get("chip")), [])) for npu in sample.get("npus") or []]
    made = {
        **identity(server),
        "state": "maintenance" if server.maintenance else "live",
        "seen": seen,
        "family": family(npus) or server.family,
        "seq": sample.get("seq"),
        "t": sample.get("t"),  # the server's own clock when the reading began, epoch seconds
        "took_ms": sample.get("took_ms"),
        "error": sample.get("error"),
        "npus": npus,
        "processes": processes,
        "host": sample.get("host") or {},
        "version": sample.get("version"),
        "holders": sample.get("holders") or {},
    }
    set_cordons(made, server, held)
    return made


def identity(server: Server) -> Now:
    """What people say of a server, and what holds it back; `mark` is quarantined, draining, drained or ''."""
    return {
        "id": server.pk,
        "name": server.name,
        "display": server.display_name,
        "simulated": server.simulated,
        "rack": server.rack,
        "agent": server.agent_version,
        "site": server.site,
        "labels": inventory.label_words(server.labels),
        "mark": "quarantined" if server.quarantine else drain_mark(server),
    }


def drain_mark(server: Server) -> str:
    return "" if not server.draining else "drained" if server.drained_at else "draining"


def set_cordons(now: Now, server: Server, held: Mapping[str, Mapping[str, Any]] | None = None) -> bool:
    """Show the NPUs that are cordoned as such, whatever is on them, and those that are promised to somebody where
    nothing is on them: to a replica (ours), or on hold (held). Whether something changed.

    `held` are promises as deployments/services/reserved.py tells them, by the NPU's name; None leaves those that
    are shown. `under` keeps what the reading said, so that an NPU shows it again when its cordon or hold ends.
    """
    npus = now["npus"]
    if not server.cordons and not held and not any("under" in npu or npu.get("held") for npu in npus):
        return False
    changed = False
    for npu, name in zip(npus, names(npus), strict=True):
        if held is not None and npu.get("held") != held.get(name):
            npu["held"], changed = held.get(name), True
        bus_id = npu.get("bus_id")
        read = npu.pop("under", npu["occ"]) if npu["occ"] != "unreadable" else "unreadable"
        shown = _over(read, bool(bus_id) and bus_id.upper() in server.cordons, npu.get("held"))
        if shown != read:
            npu["under"] = read
        changed, npu["occ"] = changed or shown != npu["occ"], shown
    return changed


def _over(read: str, cordoned: bool, held: Mapping[str, Any] | None) -> str:
    if read == "unreadable" or not (cordoned or held):
        return read
    if cordoned:
        return "cordoned"
    promised = "ours" if held and held["kind"] == "replica" else "held"
    return promised if read == "free" else read


def names(npus: Iterable[Mapping[str, Any]]) -> list[str]:
    """What reservations call each: its bus id, with the chip where several have the same; '' where it has none."""
    rows = [(npu.get("bus_id") or "", npu.get("chip") or 0) for npu in npus]
    shared = Counter(bus_id for bus_id, _chip in rows)
    return [f"{bus_id}/{chip}" if bus_id and shared[bus_id] > 1 else bus_id for bus_id, chip in rows]


def held_now(servers: Iterable[int] | None = None) -> Promises:
    """{server id: {NPU: whom it is promised to}}, as the "now" shows it. One query."""
    return {
        pk: {name: holder.as_json() for name, holder in found.items()}
        for pk, found in reserved.on_servers(servers).items()
    }


def npu_now(npu: Mapping[str, Any], processes: list[dict[str, Any]]) -> dict[str, Any]:
    """One NPU of "now". 310P chips have no HBM: their DDR takes its place."""
    has_hbm = bool(npu.get("hbm_total_mb"))
    used = npu.get("hbm_used_mb") if has_hbm else npu.get("memory_used_mb")
    total = npu.get("hbm_total_mb") if has_hbm else npu.get("memory_total_mb") or None
    return {
        "npu": npu.get("npu"),
        "chip": npu.get("chip"),
        "bus_id": npu.get("bus_id"),
        "name": npu.get("name"),
        "health": npu.get("health"),
        "codes": npu.get("codes") or [],
        "aicore": npu.get("aicore_pct"),
        "hbm_used_mb": used,
        "hbm_total_mb": total,
        "temp_c": npu.get("temp_c"),
        "power_w": npu.get("power_w"),
        "occ": occupancy(str(npu.get("name") or ""), used, processes),
    }


def occupancy(name: str, used_mb: float | None, processes: list[dict[str, Any]]) -> str:
    """free | ours | foreign | unexplained | unreadable, from the process list and the memory in use."""
    if processes:
        return "ours" if all(process.get("attempt") for process in processes) else "foreign"
    if used_mb is None:
        return "unreadable"
    return "unexplained" if used_mb > idle.most_mb(name) else "free"


def family(npus: Iterable[Mapping[str, Any]]) -> str:
    """The chip name that most NPUs of a server print, or ''."""
    names = Counter(str(npu.get("name") or "") for npu in npus)
    return names.most_common(1)[0][0] if names else ""


def is_faulty(npu: Mapping[str, Any]) -> bool:
    return npu.get("health") not in ("OK", None)


def value(npu: Mapping[str, Any], metric: str) -> float | None:
    """One metric of one NPU of "now", in its unit; None where it is unknown."""
    if metric == "hbm_pct":
        used, total = npu["hbm_used_mb"], npu["hbm_total_mb"]
        return round(100 * used / total, 1) if total and used is not None else None
    amount: float | None = npu["aicore" if metric == "aicore_pct" else metric]
    return amount


def state_at(now: Now, at: float) -> str:
    """What a server is called `at` that time: a state follows from when it was last heard, whoever wrote it."""
    if now.get("seen") is None:
        return "never"
    age = at - now["seen"]
    if age > settings.OFFLINE_AFTER_S:
        return "offline"
    if age > settings.SILENT_AFTER_S:
        return "silent"
    return "maintenance" if now.get("state") == "maintenance" else "live"


def unheard(server: Server) -> Now:
    """The "now" of a server of which only the database tells."""
    seen = server.last_seen_at.timestamp() if server.last_seen_at else None
    return {
        **identity(server),
        "state": "maintenance" if server.maintenance else "offline" if seen else "never",
        "seen": seen,
        "family": server.family,
        "seq": None,
        "t": None,
        "took_ms": None,
        "error": None,
        "npus": [],
        "processes": [],
        "host": {},
        "version": None,
        "holders": {},
    }


def all_now() -> list[Now]:
    """The "now" of every server, by id. Two database queries; without Redis what the database knows."""
    servers = list(Server.objects.present().order_by("id").only(*READ))
    try:
        kept = client().hgetall(streams.FLEET_NOW)
    except redis.RedisError:
        kept = {}
    at, held = time.time(), held_now()
    return [_current(server, kept.get(str(server.pk).encode()), at, held.get(server.pk, {})) for server in servers]


def now(server: Server) -> Now:
    """The "now" of one server."""
    try:
        kept = client().hget(streams.FLEET_NOW, str(server.pk))
    except redis.RedisError:
        kept = None
    return _current(server, kept, time.time(), held_now([server.pk]).get(server.pk, {}))


def _current(server: Server, kept: bytes | None, at: float, held: Mapping[str, Mapping[str, Any]]) -> Now:
    result: Now = {**orjson.loads(kept), **identity(server)} if kept else unheard(server)
    set_cordons(result, server, held)
    if server.maintenance:
        result["state"] = "maintenance"
    result["state"] = state_at(result, at)
    return result


def layout_generation(servers: Iterable[tuple[int, int]]) -> int:
    """A number that changes when servers or their NPUs do: cells are addressed by place, so both sides compare it.

    `servers` holds (id, number of NPUs) by rising id, as `all_now` gives them.
    """
    return zlib.crc32(",".join(f"{pk}:{count}" for pk, count in servers).encode())
