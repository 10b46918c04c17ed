"""What the fleet page shows, shaped from "now" dicts (monitoring/services/live_state.py). No database, no Redis.

A server of the page is a plain dict, which is also what scripts read from the page's JSON block:
{id, name, first, state, age, sim, family, rack, site, labels, display, agent, holder, error, dies, power_w,
 npus: [[aicore %, memory %, °C, W, occupancy code, faulty 0|1]]}
`first` is the place of its first NPU in the order that colour steps are sent in (servers by id, NPUs as
printed). None is unknown.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from django.utils.translation import gettext, gettext_noop, ngettext

from console.language import pick
from monitoring.parsers.failures import MEANINGS
from monitoring.services import live_state
from monitoring.services.live_state import Now

OCCUPANCIES = ("free", "ours", "foreign", "unexplained", "held", "cordoned", "unreadable")
CODE = {name: code for code, name in enumerate(OCCUPANCIES)}
UNREADABLE = CODE["unreadable"]
AICORE, HBM, TEMP, POWER, OCC, FAULTY = range(6)
METRIC_AT = {"aicore_pct": AICORE, "hbm_pct": HBM, "temp_c": TEMP, "power_w": POWER}
ROWS_AT_MOST = 60

# What holds a server back, besides its state.
MARKS = {
    "quarantined": gettext_noop("in quarantine"),
    "draining": gettext_noop("draining"),
    "drained": gettext_noop("drained"),
}

PageServer = dict[str, Any]


def page_servers(nows: Sequence[Now], at: float) -> list[PageServer]:
    """The servers of the page in the order of `nows` (by id). `at` is now, epoch seconds."""
    servers, first = [], 0
    for now in nows:
        servers.append(page_server(now, first, at))
        first += len(now["npus"])
    return servers


def page_server(now: Now, first: int, at: float) -> PageServer:
    npus = [page_npu(npu) for npu in now["npus"]]
    watts = [watts for npu in npus if (watts := npu[POWER]) is not None]
    return {
        "id": now["id"],
        "name": now["name"],
        "first": first,
        "state": now["state"],
        "age": None if now["seen"] is None else round(max(0.0, at - now["seen"]), 1),
        "sim": bool(now["simulated"]),
        "family": now["family"],
        "rack": now["rack"],
        "site": now["site"],
        "labels": now["labels"],
        "display": now["display"],
        "agent": now.get("agent") or "",
        "holder": holder(now),
        "error": bool(now["error"]),
        "dies": dies(now["npus"]),
        "power_w": round(sum(watts)) if watts else None,
        "npus": npus,
    }


def page_npu(npu: Mapping[str, Any]) -> list[int | None]:
    """Runs 8,000 times a page, so it says in one go what live_state.value says metric by metric."""
    aicore, temp, power = npu["aicore"], npu["temp_c"], npu["power_w"]
    used, total = npu["hbm_used_mb"], npu["hbm_total_mb"]
    return [
        None if aicore is None else round(aicore),
        round(100 * used / total) if total and used is not None else None,
        None if temp is None else round(temp),
        None if power is None else round(power),
        CODE.get(npu["occ"], UNREADABLE),
        0 if npu["health"] in ("OK", None) else 1,
    ]


def dies(npus: Sequence[Mapping[str, Any]]) -> int:
    """2 where every card prints two chips (A3, 300I Duo), which share the width of one square; else 1."""
    chips = Counter(npu["npu"] for npu in npus)
    return 2 if chips and set(chips.values()) == {2} else 1


JOB_OF_ATTEMPT = re.compile(r"a(\d{1,15})-", re.ASCII)


@lru_cache(maxsize=4096)
def job_of(attempt: str | None) -> int | None:
    """The job's number in an attempt id such as "a42-1-9f3c21aa"."""
    match = JOB_OF_ATTEMPT.match(attempt or "")
    return int(match[1]) if match else None


def holder(now: Now) -> str:
    """Who holds the server's NPUs, in the reader's language; '' where there is none to hold."""
    told = _holder(now)
    if not now["mark"]:
        return told
    mark = gettext(MARKS[now["mark"]])
    return f"{mark} · {told}" if told else mark


def _holder(now: Now) -> str:
    if now["error"]:
        return error_words(now["error"])[0]
    if not now["npus"]:
        return gettext("no NPU") if now["seen"] is not None else ""
    parts = [*_jobs(now), *_foreigners(now), *_faults(now)]
    held = {npu["occ"] for npu in now["npus"]}
    if "unexplained" in held:
        parts.append(gettext("memory taken, no process listed"))
    if "held" in held:
        parts.append(gettext("on hold: %(who)s") % {"who": ", ".join(_holders_of(now, "hold"))})
    if "cordoned" in held:
        parts.append(gettext("cordoned"))
    return " · ".join(parts) or gettext("free")


def _jobs(now: Now) -> list[str]:
    attempts = {process.get("attempt") for process in now["processes"]}
    numbers = sorted(job for attempt in attempts if (job := job_of(attempt)))
    named = {str(value) for value in (now.get("holders") or {}).values()}
    named |= set(_holders_of(now, "replica"))
    return [*sorted(named), *(gettext("job #%(id)s") % {"id": number} for number in numbers[:3])]


def _holders_of(now: Now, kind: str) -> list[str]:
    """Teams, or deployments, that NPUs of the server are promised to."""
    found = {str(npu["held"]["name"]) for npu in now["npus"] if npu.get("held") and npu["held"]["kind"] == kind}
    return sorted(found)[:3]


def _foreigners(now: Now) -> list[str]:
    places: dict[str, set[tuple[Any, Any]]] = {}
    for process in now["processes"]:
        if not process.get("attempt"):
            words = [str(process[name]) for name in ("user", "name") if process.get(name)]
            who = ", ".join(words) or f"pid {process.get('pid')}"
            places.setdefault(who, set()).add((process.get("npu"), process.get("chip")))
    parts = []
    for who, held in list(places.items())[:2]:
        count = ngettext("%(n)s NPU", "%(n)s NPUs", len(held)) % {"n": len(held)}
        parts.append(gettext("foreign: %(who)s, %(count)s") % {"who": who, "count": count})
    return parts


def _faults(now: Now) -> list[str]:
    faulty = [(index, npu) for index, npu in enumerate(now["npus"]) if live_state.is_faulty(npu)]
    return [gettext("NPU %(n)s %(health)s") % {"n": index, "health": npu["health"]} for index, npu in faulty[:2]]


def error_words(error: Mapping[str, Any]) -> tuple[str, str]:
    """(what happened, what to do) of an unreadable reading, in the reader's language; the second may be ''."""
    what, do = error.get("what"), error.get("do")
    if what:
        return pick(what), pick(do)
    meaning = error.get("meaning")
    if meaning in MEANINGS:
        known = MEANINGS[meaning]
        return pick(known.what), pick(known.do)
    if meaning:
        return gettext("npu-smi could not be read (%(meaning)s)") % {"meaning": meaning}, ""
    return gettext("npu-smi could not be read"), ""


def summary(server: PageServer) -> dict[str, int | None]:
    """Means over the server's NPUs: {aicore, hbm, hottest, power_w}; None where unknown or not fresh."""
    if server["state"] not in live_state.HEARD:
        return dict.fromkeys(("aicore", "hbm", "hottest", "power_w"))
    known = {at: [npu[at] for npu in server["npus"] if npu[at] is not None] for at in (AICORE, HBM, TEMP)}
    return {
        "aicore": _mean(known[AICORE]),
        "hbm": _mean(known[HBM]),
        "hottest": max(known[TEMP], default=None),
        "power_w": server["power_w"],
    }


def _mean(numbers: Sequence[int]) -> int | None:
    return round(sum(numbers) / len(numbers)) if numbers else None


def counts(servers: Iterable[PageServer]) -> dict[str, int]:
    """How many servers and NPUs, and how many of each state and occupancy; faulty NPUs also count by occupancy."""
    tally: Counter[str] = Counter()
    for server in servers:
        tally["servers"] += 1
        tally["npus"] += len(server["npus"])
        tally[server["state"]] += 1
        for npu in server["npus"]:
            tally[OCCUPANCIES[npu[OCC]]] += 1
            tally["faulty"] += npu[FAULTY]
    names = ("servers", "live", "silent", "offline", "never", "maintenance", "npus", "faulty", *OCCUPANCIES)
    return {name: tally[name] for name in names}


def block(servers: Sequence[PageServer], at: float) -> dict[str, Any]:
    """The page's JSON: {gen, at, servers}. `gen` names the layout that colour steps are addressed in."""
    generation = live_state.layout_generation((server["id"], len(server["npus"])) for server in servers)
    return {"gen": generation, "at": round(at, 3), "servers": list(servers)}
