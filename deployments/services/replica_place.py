"""Make one more replica: where it fits, with its NPUs and port reserved, and the job that starts it queued."""

from collections.abc import Callable, Iterable
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from console.errors import ConsoleError, Conflict
from deployments.models import Replica, ReplicaState, Server
from deployments.row_locks import hold_servers
from deployments.serving import settings as serving_settings
from deployments.services import model_copies, placement, ports, reconcile_reasons, reservations, serve_jobs
from deployments.services.picture import Picture
from deployments.steps import BadParams, Text

TRIED = 5  # candidates, where others take NPUs away before us


class NoRoom(Exception):
    """`reason` [zh, en]: why there is no place for it, or why it cannot be started there."""

    def __init__(self, reason: Text) -> None:
        super().__init__(reason.en)
        self.reason = list(reason)


def place(seen: Picture, still: Callable[[], Picture | None]) -> Replica | None:
    """The replica with its job queued; None where it is no longer wanted. `still` locks the deployment and says so.

    Raises NoRoom.
    """
    refused: ConsoleError | None = None
    for candidate in _candidates(seen):
        try:
            with transaction.atomic():
                now = still()
                return _make(now, candidate) if now is not None else None
        except Conflict as error:  # somebody else has taken it in this moment
            refused, where = error, candidate.server.name
        except ConsoleError as error:
            raise NoRoom(reconcile_reasons.refused(candidate.server.name, error)) from error
    raise NoRoom(reconcile_reasons.refused(where, refused)) if refused else _no_room(seen)


def _candidates(seen: Picture) -> list[Any]:
    """Where it fits, best first: after one was given up in a rollout, its place before all others."""
    given_up = seen.rollout.get("place")
    found = _choose(seen, [given_up]) if given_up else []
    return (found or _choose(seen, seen.deployment.servers or None))[:TRIED]


def _choose(seen: Picture, servers: list[str] | None) -> list[Any]:
    settings, artifact = _asked(seen)
    found = placement.look(
        settings, artifact, servers=servers, spread=seen.deployment.spread, deployment=seen.deployment
    )
    return [candidate for candidate in found if candidate.fits]


def _asked(seen: Picture) -> tuple[Any, Any]:
    """(settings, artifact) of the present revision. Raises NoRoom where they are no longer valid."""
    revision = seen.deployment.revision
    if revision is None or revision.artifact is None:
        raise NoRoom(Text("模型已不在控制台中，无法启动副本", "The console knows its model no longer, so none is started"))
    if revision.fingerprint != revision.artifact.fingerprint:
        raise NoRoom(
            Text(
                "模型的内容与此修订记录的不同，请建立新的修订",
                "The content of its model is not what this revision recorded; make a new revision",
            )
        )
    try:
        return serving_settings.read(revision.settings), revision.artifact
    except BadParams as error:
        name, text = error.problems[0]
        raise NoRoom(Text(f"设置 {name}：{text.zh}", f"The setting {name}: {text.en}")) from error


def _no_room(seen: Picture) -> NoRoom:
    settings, artifact = _asked(seen)
    servers = seen.deployment.servers or None
    found = placement.look(settings, artifact, servers=servers, spread=seen.deployment.spread, deployment=seen.deployment)
    missing = max(1, seen.deployment.wished - len(seen.live))
    nearest = next((candidate for candidate in found if candidate.why_not), None)
    if nearest is None:
        return NoRoom(reconcile_reasons.no_room(missing, None, ""))
    return NoRoom(reconcile_reasons.no_room(missing, nearest.why_not[0], nearest.server.name))


def _make(seen: Picture, candidate: Any) -> Replica:
    deployment, revision = seen.deployment, seen.deployment.revision
    assert revision is not None
    nodes = list(getattr(candidate, "nodes", None) or [])
    hold_servers([candidate.server.pk, *(node["server"] for node in nodes)])
    n = (deployment.replica_set.aggregate(last=Max("n"))["last"] or 0) + 1
    row = Replica.objects.create(
        deployment=deployment, revision=revision, n=n, server=candidate.server, npus=list(candidate.npus), nodes=nodes,
        path=candidate.path, address=address_of(candidate.server), why=[list(text) for text in candidate.why],
    )  # fmt: skip
    reservations.take(row, candidate.server, candidate.npus)
    for node in nodes[1:]:
        reservations.take(row, Server.objects.get(pk=node["server"]), node["npus"])
    row.port = ports.lease(candidate.server, replica=row)
    row.save(update_fields=["port"])
    job = serve_jobs.start(row, by=_by(seen))
    Replica.objects.filter(pk=row.pk).update(serve_job=job, state=ReplicaState.STARTING, heard_at=timezone.now())
    return row


def _by(seen: Picture) -> Any:
    by = (seen.deployment.revision.by if seen.deployment.revision else None) or seen.deployment.owner
    if by is None:
        raise NoRoom(reconcile_reasons.NOBODY)
    return by


def address_of(server: Server) -> str:
    """Where its engines listen: its service address, else that of its default route; loopback on our own machine."""
    if server.is_local or server.simulated:
        return "127.0.0.1"
    named: Iterable[tuple[str, str]] = server.address_roles.items()
    return next((address for address, role in named if role == "service"), model_copies.address_of(server)) or "127.0.0.1"
