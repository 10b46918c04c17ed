"""To promise NPUs to replicas and to people. One row for each NPU: the constraint on them, and the lock on the server's
row, keep two from sharing one. services/reserved.py says who holds what.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from console.errors import Conflict
from console.language import pick
from deployments import kinds
from deployments.models import Hold, Replica, Reservation, Server
from deployments.row_locks import lock_servers
from deployments.services import waiting
from deployments.services.reserved import Held, covers, known_names, name_of, names_on, of, on_servers, standing, taken

__all__ = ["Held", "Wanted", "name_of", "names_on", "of", "on_servers", "release", "take", "take_all", "take_for_hold"]


@dataclass(frozen=True)
class Wanted:
    """NPUs of one server, by name."""

    server: int
    names: Sequence[str]


# ---------- take and release ----------


def take(replica: Replica, server: Server, names: Sequence[str]) -> list[Reservation]:
    """Promise these NPUs of a server to the replica, all or none. Raises Conflict that names who has one."""
    return take_all(replica, [Wanted(server.pk, names)])


def take_all(replica: Replica, wanted: Sequence[Wanted]) -> list[Reservation]:
    """The same on several servers at once, as a replica that spans them needs it."""
    return _take(wanted, replica=replica)


def take_for_hold(hold: Hold, names: Sequence[str]) -> list[Reservation]:
    """Keep these NPUs for somebody. Jobs that hold one go on: what is kept is theirs who comes after."""
    return _take([Wanted(hold.server_id, names)], hold=hold)


def release(replica: Replica) -> int:
    """Whatever the replica holds is free; how many NPUs."""
    with transaction.atomic():
        rows = Reservation.objects.filter(replica=replica)
        lock_servers(rows.values_list("server_id", flat=True))
        return rows.delete()[0]


def _take(wanted: Sequence[Wanted], *, replica: Replica | None = None, hold: Hold | None = None) -> list[Reservation]:
    with transaction.atomic():
        servers = lock_servers(one.server for one in wanted)
        made = []
        for one in wanted:
            server = servers.get(one.server)
            if server is None or server.is_gone:
                raise Conflict(
                    _("The server is no more."), _("Choose another one, then try again."), code="server_gone"
                )
            names = known_names(server, one.names)
            _sweep(server)
            _check_free(server, names, replica)
            if replica is not None:
                _check_jobs(server, names, replica)
            mine = set(Reservation.objects.filter(server=server, npu__in=names).values_list("npu", flat=True))
            made += [
                Reservation(server=server, npu=name, replica=replica, hold=hold) for name in names if name not in mine
            ]
        return _written(made, servers)


def _sweep(server: Server) -> None:
    """Rows of who is gone would stand in the way of the constraint."""
    Reservation.objects.filter(server=server).exclude(pk__in=standing().values("pk")).delete()


def _check_free(server: Server, names: Sequence[str], replica: Replica | None) -> None:
    for npu, holder in of(server).items():
        own = replica is not None and holder.kind == "replica" and holder.pk == replica.pk
        if not own and any(covers(npu, name) for name in names):
            raise taken(server, npu, holder)


def _check_jobs(server: Server, names: Sequence[str], replica: Replica) -> None:
    mine = f"engine:{replica.pk}"
    for job in waiting.on_servers([server.pk]).get(server.pk, []):
        locks = [lock[len(waiting.NPU_LOCK) :] for lock in job.locks if lock.startswith(waiting.NPU_LOCK)]
        held = next((name for name in names if any(covers(name, lock) for lock in locks)), "")
        if held and mine not in job.locks:
            raise Conflict(
                _("NPU %(npu)s of %(server)s is held by job #%(id)s (%(kind)s).")
                % {"npu": held, "server": server.name, "id": job.pk, "kind": pick(kinds.title(job.kind))},
                _("Choose other NPUs, or wait until the job has ended."),
                code="npu_locked",
            )


def _written(made: list[Reservation], servers: Mapping[int, Server]) -> list[Reservation]:
    try:
        with transaction.atomic():
            return Reservation.objects.bulk_create(made)
    except IntegrityError:
        for row in made:
            server = servers[row.server_id]
            if holder := of(server).get(row.npu):
                raise taken(server, row.npu, holder) from None
        raise Conflict(
            _("Somebody else took one of these NPUs in this moment."), _("Look again, and choose others."), code="taken"
        ) from None
