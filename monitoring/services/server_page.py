"""What the page of one server shows, shaped from its "now", its facts and its last minutes. No database, no Redis."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext, gettext_noop

from console.language import pick
from deployments.services.reserved import Held
from monitoring.services import live_state
from monitoring.services.fleet_page import error_words, job_of
from monitoring.services.live_state import Now
from monitoring.services.page_texts import OCCUPANCIES

SPARK_S = 600


@dataclass(frozen=True)
class Part:
    """One piece of a tile's memory bar: where it begins and how wide it is, per cent."""

    css: str
    start: float
    width: float


@dataclass(frozen=True)
class Tile:
    """One NPU. `key` is "<npu>.<chip>", under which scripts find it; `index` is its place in the order printed. `held`
    is whom it is promised to, as reserved.Held tells it."""

    index: int
    key: str
    npu: Mapping[str, Any]
    faulty: bool
    parts: list[Part]
    holders: list["Holder"]
    occupancy: str
    memory: str
    cordon: Mapping[str, str] | None = None
    held: Mapping[str, Any] | None = None
    held_words: str = ""


@dataclass(frozen=True)
class Holder:
    """Whose a process is: of one of our jobs (`job` is its number), of what we serve, or a foreign one's."""

    ours: bool
    job: int | None
    text: str


@dataclass(frozen=True)
class ProcessRow:
    pid: int | None
    user: str | None
    command: str
    places: str
    memory_mb: float | None
    whose: Holder


def tiles(now: Now, cordons: Mapping[str, Mapping[str, str]] | None = None) -> list[Tile]:
    """One tile per NPU in the order printed. `cordons` are those of the server, by bus id."""
    made = []
    for index, npu in enumerate(now["npus"]):
        held = [p for p in now["processes"] if (p.get("npu"), p.get("chip")) == (npu["npu"], npu["chip"])]
        word = gettext(OCCUPANCIES.get(npu["occ"], OCCUPANCIES["unreadable"]))
        faulty, parts = live_state.is_faulty(npu), memory_parts(npu, held)
        names = list(dict.fromkeys(holder(process, now["holders"], npu.get("held"), short=True) for process in held))
        cordon = (cordons or {}).get(str(npu["bus_id"] or "").upper())
        promise = npu.get("held")
        more = (cordon, promise, held_words(promise) if promise else "")
        made.append(Tile(index, key_of(npu), npu, faulty, parts, names, word, memory_word(npu), *more))
    return made


def held_words(held: Mapping[str, Any]) -> str:
    """ "replica 2 of chat", "vision until 2026-12-01 18:00:00 +08:00"."""
    until = datetime.fromisoformat(held["until"]) if held.get("until") else None
    return pick(Held(held["kind"], held["id"], held["name"], held["n"], until).words())


def key_of(npu: Mapping[str, Any]) -> str:
    return f"{npu['npu']}.{npu['chip']}"


def memory_parts(npu: Mapping[str, Any], processes: Iterable[Mapping[str, Any]]) -> list[Part]:
    """The memory bar: other (driver, idle level, unlisted), ours, foreign; [] where the total is unknown."""
    total, used = npu["hbm_total_mb"], npu["hbm_used_mb"]
    if not total or used is None:
        return []
    ours = sum(p["memory_mb"] or 0 for p in processes if p.get("attempt"))
    foreign = sum(p["memory_mb"] or 0 for p in processes if not p.get("attempt"))
    amounts = {"other": max(0, used - ours - foreign), "ours": ours, "foreign": foreign}
    parts, start = [], 0.0
    for css, amount in amounts.items():
        width = round(min(100.0 - start, 100 * amount / total), 1)
        parts.append(Part(css, round(start, 1), width))
        start += width
    return parts


def holder(
    process: Mapping[str, Any], names: Mapping[str, str], promise: Mapping[str, Any] | None = None, *,
    short: bool = False,
) -> Holder:  # fmt: skip
    """Whose a process is. `names` are what the server itself calls its holders, by pid, `promise` whom the NPU is
    promised to; `short` names a foreigner."""
    attempt, pid = process.get("attempt"), process.get("pid")
    job = job_of(attempt)
    if job:
        return Holder(True, job, gettext("job #%(id)s") % {"id": job})
    if attempt and promise and promise["kind"] == "replica" and attempt == f"e{promise['id']}":
        return Holder(True, None, held_words(promise))
    if attempt:
        return Holder(True, None, names.get(str(pid)) or gettext("ours"))
    words = [str(process[name]) for name in ("user", "name") if process.get(name)]
    return Holder(False, None, (" ".join(words) or f"pid {pid}") if short else gettext("foreign process"))


def memory_word(npu: Mapping[str, Any]) -> str:
    """What the chip calls its memory: 310 chips have DDR where the others have HBM."""
    return "DDR" if "310" in (npu["name"] or "") else "HBM"


def processes(now: Now) -> list[ProcessRow]:
    """The processes on NPUs, one row per pid and NPU, by place. `places` names the NPU by its index."""
    index_of = {(npu["npu"], npu["chip"]): index for index, npu in enumerate(now["npus"])}
    rows = []
    for process in now["processes"]:
        place = index_of.get((process.get("npu"), process.get("chip")))
        promise = None if place is None else now["npus"][place].get("held")
        rows.append(
            ProcessRow(
                pid=process.get("pid"),
                user=process.get("user"),
                command=process.get("command") or process.get("name") or "",
                places="—" if place is None else str(place),
                memory_mb=process.get("memory_mb"),
                whose=holder(process, now["holders"], promise),
            )
        )
    return sorted(rows, key=lambda row: (row.places == "—", row.places.zfill(4), row.pid or 0))


def sparks(minutes: Iterable[tuple[datetime, Mapping[str, Any]]]) -> dict[str, list[list[float | None]]]:
    """{NPU key: [[epoch s, AI Core % or None]]} from packed minutes (monitoring/history.py), oldest first."""
    points: dict[str, list[list[float | None]]] = {}
    for at, data in minutes:
        for key, amounts in (data.get("npus") or {}).items():
            points.setdefault(key, []).append([at.timestamp() + 30, amounts[0]])
    return points


FACTS = (
    ("os", gettext_noop("Operating system")),
    ("kernel", gettext_noop("Kernel")),
    ("arch", gettext_noop("Architecture")),
    ("cpu_model", gettext_noop("CPU")),
    ("cpus", gettext_noop("CPU cores")),
    ("sockets", gettext_noop("Sockets")),
    ("numa_nodes", gettext_noop("NUMA nodes")),
    ("mem_total_mb", gettext_noop("Memory")),
    ("driver", gettext_noop("Driver")),
    ("firmware", gettext_noop("Firmware")),
    ("cann", gettext_noop("CANN")),
    ("python", gettext_noop("Python")),
    ("glibc", gettext_noop("glibc")),
    ("agent", gettext_noop("Agent")),
    ("root", gettext_noop("Root")),
)
ROOT_WORDS = {
    "root": gettext_noop("the agent runs as root"),
    "helper": gettext_noop("by the root helper"),
    "old": gettext_noop("by a root helper of another version; the command for joining renews it"),
    "none": gettext_noop("no root helper"),
    "refused": gettext_noop("the root helper is there, but sudo refuses it"),
}


def facts(known: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(label, value) of each fact; "—" where the server did not tell."""
    return [(gettext(label), _fact(key, known.get(key))) for key, label in FACTS]


def _fact(key: str, value: Any) -> str:
    if value in (None, ""):
        return "—"
    if key == "mem_total_mb" and isinstance(value, (int, float)):
        return f"{value / 1024:,.0f} GiB"
    if key == "root" and isinstance(value, str) and value in ROOT_WORDS:
        return gettext(ROOT_WORDS[value])
    if isinstance(value, dict):
        value = value.get("version") or ", ".join(f"{name} {word}" for name, word in value.items())
    if isinstance(value, list):
        value = ", ".join(str(item) for item in value)
    return str(value).strip()[:200] or "—"


def driver(known: Mapping[str, Any], now: Now) -> str:
    """The driver's version as its own file tells, else as npu-smi prints its own, else "—"."""
    told = _fact("driver", known.get("driver"))
    return told if told != "—" else now["version"] or "—"


@dataclass(frozen=True)
class HostFigure:
    """One figure of the host: `value` and `unit`, or `part` of `whole` with a bar. `key` is what scripts look for."""

    key: str
    label: str
    value: str
    unit: str
    pct: float | None = None


def host_figures(host: Mapping[str, Any]) -> list[HostFigure]:
    """Load, CPU, memory, disk and network in that order; "—" for what is unknown."""

    def figure(name: str, digits: int = 0) -> str:
        value = host.get(name)
        return "—" if value is None else f"{value:,.{digits}f}"

    def share(part: str, whole: str) -> float | None:
        return _pct(host.get(part), host.get(whole))

    memory, disk = share("mem_used_mb", "mem_total_mb"), share("disk_used_gb", "disk_total_gb")
    in_all = f"/ {_gib(host.get('mem_total_mb'))} GiB"
    return [
        HostFigure("cpu_pct", gettext("CPU"), figure("cpu_pct"), "%", host.get("cpu_pct")),
        HostFigure("load1", gettext("Load"), figure("load1", 2), f"/ {figure('cpus')}", share("load1", "cpus")),
        HostFigure("mem", gettext("Memory"), _gib(host.get("mem_used_mb")), in_all, memory),
        HostFigure("disk", gettext("Disk"), figure("disk_used_gb"), f"/ {figure('disk_total_gb')} GB", disk),
        HostFigure("rx_kbps", gettext("Received"), figure("rx_kbps"), "kbit/s"),
        HostFigure("tx_kbps", gettext("Sent"), figure("tx_kbps"), "kbit/s"),
    ]


def _gib(mb: float | None) -> str:
    return "—" if mb is None else f"{mb / 1024:,.1f}"


def _pct(part: float | None, whole: float | None) -> float | None:
    return round(min(100.0, 100 * part / whole), 1) if part is not None and whole else None


def offset_words(seconds: float | None) -> str:
    """The server's clock against the console's: "+12 ms", "−1.4 s", "—"."""
    if seconds is None:
        return "—"
    sign = "−" if seconds < 0 else "+"
    amount = abs(seconds)
    return f"{sign}{amount * 1000:.0f} ms" if amount < 1 else f"{sign}{amount:,.1f} s"


def unreadable(now: Now) -> dict[str, str] | None:
    """{what, do, text} of the last reading where nobody could read it."""
    error = now["error"]
    if not error:
        return None
    what, do = error_words(error)
    return {"what": what, "do": do, "text": error.get("text") or ""}
