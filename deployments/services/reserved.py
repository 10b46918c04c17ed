"""Whose an NPU is: what replicas and people have been promised. services/reservations.py promises.

An NPU is named by its bus id, with `/chip` where several chips have the same; `covers` compares such names. A replica
that is gone and a hold that has ended hold nothing, whatever rows there are.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from console import clock
from console.errors import Conflict, Invalid
from console.language import pick
from deployments.models import GONE, Npu, Reservation, Server
from deployments.steps import Text

NPU_LOCK = "npu:"


class Held(NamedTuple):
    """Who holds an NPU: a replica of a deployment (`kind` replica) or somebody until a date (hold)."""

    kind: str
    pk: int  # of the replica or the hold
    name: str  # of the deployment, or the team
    n: int = 0  # of the replica
    until: datetime | None = None
    reason: str = ""

    def words(self) -> Text:
        if self.kind == "replica":
            return Text(f"部署 {self.name} 的副本 {self.n}", f"replica {self.n} of {self.name}")
        until = clock.words(self.until, clock.LONG) if self.until else "—"
        return Text(f"{self.name}（至 {until}）", f"{self.name} until {until}")

    def as_json(self) -> dict[str, Any]:
        until = self.until.isoformat() if self.until else None
        return {"kind": self.kind, "id": self.pk, "name": self.name, "n": self.n, "until": until, "reason": self.reason}


# ---------- names ----------


def present(npus: Iterable[Npu]) -> list[Npu]:
    """Those of the newest reading: rows of lost cards stay, with their older time."""
    rows = list(npus)
    newest = max((npu.seen_at for npu in rows), default=None)
    return [npu for npu in rows if npu.seen_at == newest]


def name_of(npu: Npu, npus: Iterable[Npu]) -> str:
    """Its bus id as printed, for so agents and locks know it, with `/chip` where another of `npus` has the same; ''
    where it has none."""
    if not npu.bus_id:
        return ""
    shared = sum(one.bus_id == npu.bus_id for one in npus) > 1
    return f"{npu.bus_id}/{npu.chip_id}" if shared else npu.bus_id


def names_on(server: Server) -> list[str]:
    """The names of the NPUs that a server has now, in the order printed."""
    there = present(server.npus.order_by("device_index"))
    return [name for npu in there if (name := name_of(npu, there))]


def covers(one: str, other: str) -> bool:
    """Whether two names mean the same chip, or one of them the whole bus id of the other."""
    bus, _slash, chip = one.upper().partition("/")
    other_bus, _slash, other_chip = other.upper().partition("/")
    return bus == other_bus and (not chip or not other_chip or chip == other_chip)


def known_names(server: Server, wanted: Iterable[str]) -> list[str]:
    """`wanted` as reservations name them, each once. Raises Invalid for one that the server does not have now."""
    there = {name.upper(): name for name in names_on(server)}
    found = []
    for one in dict.fromkeys(name.strip().upper() for name in wanted):
        if one not in there:
            raise Invalid(
                _("%(server)s has no NPU %(bus_id)s.") % {"server": server.name, "bus_id": one[:40]},
                _("Choose of these: %(names)s.") % {"names": ", ".join(there) or "—"},
                code="no_such_npu",
            )
        found.append(there[one])
    return found


# ---------- who holds what ----------


def standing() -> QuerySet[Reservation]:
    """Those that hold: of replicas that are not gone, and of holds that have neither ended nor run out."""
    held = Q(hold__ended_at=None, hold__until__gt=timezone.now(), replica=None)
    return Reservation.objects.filter(held | Q(replica__isnull=False, hold=None) & ~Q(replica__state__in=GONE))


def on_servers(servers: Iterable[int] | None = None) -> dict[int, dict[str, Held]]:
    """{server id: {NPU: who holds it}} of these servers, None for all. One query."""
    rows = standing() if servers is None else standing().filter(server__in=set(servers))
    found: dict[int, dict[str, Held]] = {}
    values = rows.order_by().values_list(
        "server_id", "npu", "replica_id", "replica__n", "replica__deployment__name",
        "hold_id", "hold__team", "hold__until", "hold__reason",
    )  # fmt: skip
    for server, npu, replica, n, deployment, hold, team, until, reason in values:
        holder = Held("replica", replica, deployment, n) if replica else Held("hold", hold, team, 0, until, reason)
        found.setdefault(server, {})[npu] = holder
    return found


def of(server: Server) -> dict[str, Held]:
    """{NPU: who holds it} of one server."""
    return on_servers([server.pk]).get(server.pk, {})


def names_npu(locks: Iterable[str]) -> bool:
    return any(lock.startswith(NPU_LOCK) for lock in locks)


def in_the_way(held: Mapping[str, Held], locks: Iterable[str]) -> tuple[str, Held] | None:
    """(NPU, who holds it) of the first of a job's locks that is promised to somebody else than the replica whose
    engine the job is about (lock `engine:<replica>`), None where all are free."""
    mine, wanted = set(), []
    for lock in locks:
        if lock.startswith(NPU_LOCK):
            wanted.append(lock[len(NPU_LOCK) :])
        elif lock.startswith("engine:"):
            mine.add(lock.partition(":")[2])
    for npu, holder in sorted(held.items()):
        if holder.kind == "replica" and str(holder.pk) in mine:
            continue
        if any(covers(npu, lock) for lock in wanted):
            return npu, holder
    return None


def taken(server: Server, npu: str, holder: Held) -> Conflict:
    return Conflict(
        _("NPU %(npu)s of %(server)s is kept for %(holder)s.")
        % {"npu": npu, "server": server.name, "holder": pick(holder.words())},
        _("Choose other NPUs, wait until the hold ends, or end it on the page NPU holds.")
        if holder.kind == "hold"
        else _("Choose other NPUs, or stop that replica first."),
        code="npu_reserved",
    )
