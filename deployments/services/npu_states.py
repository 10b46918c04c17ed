"""Whether each NPU of a server is free, as far as it is known: for people who choose some."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from console.language import pick
from deployments.models import Npu, Server
from deployments.services import in_use, reserved, waiting

MOST_NAMES = 3


@dataclass(frozen=True)
class Now:
    """`state`: free | used | held | cordoned | unknown. `words` say it, with who holds or uses it."""

    npu: Npu
    name: str
    state: str
    words: str

    @property
    def look(self) -> str:
        return {"free": "ok", "used": "warning", "held": "info", "cordoned": "stale"}.get(self.state, "stale")

    @property
    def icon(self) -> str:
        names = {"free": "state-ok", "used": "state-warning", "held": "lock", "cordoned": "state-cancelled"}
        return names.get(self.state, "state-unknown")


def of(server: Server) -> list[Now]:
    """Those that have a name, in the order printed."""
    there = reserved.present(server.npus.order_by("device_index"))
    held, processes = reserved.of(server), in_use.processes(server)
    locked = _locked(server)
    made = []
    for npu in there:
        name = reserved.name_of(npu, there)
        if name:
            made.append(Now(npu, name, *_judged(server, npu, name, held, locked, processes)))
    return made


def _judged(
    server: Server, npu: Npu, name: str, held: dict[str, reserved.Held], locked: dict[str, int],
    processes: list[dict[str, Any]] | None,
) -> tuple[str, str]:  # fmt: skip
    """(state, words), what is in the way of most first."""
    if name in held:
        return "held", _("kept for %(who)s") % {"who": pick(held[name].words())}
    if f"{npu.bus_id}".upper() in server.cordons:
        return "cordoned", _("cordoned")
    job = next((job for lock, job in locked.items() if reserved.covers(lock, name)), None)
    if job is not None:
        return "used", _("job #%(job)s holds it or waits for it") % {"job": job}
    if processes is None:
        return "unknown", _("no fresh reading says whether it is free")
    mine = [one for one in processes if (one.get("npu"), one.get("chip") or 0) == (npu.npu_id, npu.chip_id or 0)]
    return ("used", _("used by %(who)s") % {"who": _names(mine)}) if mine else ("free", _("free"))


def _names(processes: Sequence[dict[str, Any]]) -> str:
    """Name and number of the first processes."""
    words = [f"{str(one.get('name') or '—')[:40]} ({one.get('pid') or '—'})" for one in processes[:MOST_NAMES]]
    return ", ".join(words) + (" …" if len(processes) > MOST_NAMES else "")


def _locked(server: Server) -> dict[str, int]:
    """{NPU: the job that holds it or waits for it}."""
    jobs = waiting.on_servers([server.pk]).get(server.pk, [])
    prefix = reserved.NPU_LOCK
    return {lock[len(prefix) :]: job.pk for job in jobs for lock in job.locks if lock.startswith(prefix)}
