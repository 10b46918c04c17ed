"""Make one more replica: where it fits, with its NPUs and port reserved, and the job that starts it queued."""

from collections.abc import Callable, Mapping
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.utils.translation import gettext as _

from console.errors import Conflict, ConsoleError
from deployments.models import Artifact, Replica, ReplicaState, Server
from deployments.row_locks import lock_servers
from deployments.services import placement, ports, reconcile_reasons, reservations, serve_jobs
from deployments.services.picture import Picture
from deployments.serving import settings as serving_settings
from deployments.serving.fields import Settings
from deployments.serving.placing import Candidate
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
    refused: NoRoom | None = None
    for candidate in _candidates(seen):
        try:
            with transaction.atomic():
                now = still()
                return _make(now, candidate) if now is not None else None
        except Conflict as error:  # somebody else has taken it in this moment
            refused = NoRoom(reconcile_reasons.refused(candidate.server, error))
        except ConsoleError as error:
            raise NoRoom(reconcile_reasons.refused(candidate.server, error)) from error
    raise refused or _no_room(seen)


def _candidates(seen: Picture) -> list[Candidate]:
    """Where it fits, best first: after one was given up in a rollout, its place before all others."""
    given_up = seen.rollout.get("place")
    found = _choose(seen, [given_up]) if given_up else []
    return (found or _choose(seen, seen.deployment.servers or None))[:TRIED]


def _choose(seen: Picture, servers: list[str] | None) -> list[Candidate]:
    settings, artifact = _asked(seen)
    found = placement.look(
        settings, artifact, servers=servers, spread=seen.deployment.spread, deployment=seen.deployment
    )
    return [candidate for candidate in found if candidate.fits]


def _asked(seen: Picture) -> tuple[Settings, Artifact]:
    """(settings, artifact) of the present revision. Raises NoRoom where they are no longer valid."""
    revision = seen.deployment.revision
    if revision is None or revision.artifact is None:
        raise NoRoom(
            Text("模型已不在控制台中，无法启动副本", "The console knows its model no longer, so none is started")
        )
    if revision.fingerprint != revision.artifact.fingerprint:
        raise NoRoom(
            Text(
                "模型的内容与此版本记录的不同，请建立新的版本",
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
    found = placement.look(
        settings, artifact, servers=servers, spread=seen.deployment.spread, deployment=seen.deployment
    )
    missing = max(1, seen.deployment.wished - len(seen.live))
    nearest = next((candidate for candidate in found if candidate.why_not), None)
    if nearest is None:
        return NoRoom(reconcile_reasons.no_room(missing, None, ""))
    why = reconcile_reasons.no_stack if nearest.codes[:1] == ("stack",) else reconcile_reasons.no_room
    return NoRoom(why(missing, nearest.why_not[0], nearest.server))


def _make(seen: Picture, candidate: Candidate) -> Replica:
    deployment, revision = seen.deployment, seen.deployment.revision
    assert revision is not None
    servers = hold(candidate)
    server = servers[candidate.pk]
    n = (deployment.replica_set.aggregate(last=Max("n"))["last"] or 0) + 1
    row = Replica.objects.create(
        deployment=deployment, revision=revision, n=n, server=server, npus=list(candidate.npus),
        nodes=_nodes(candidate, servers), path=candidate.path, address=ports.address_of(server),
        why=[list(text) for text in candidate.why],
    )  # fmt: skip
    for pk, names in _npus(candidate).items():
        reservations.take(row, servers[pk], names)
    row.port = ports.lease(server, replica=row)
    row.save(update_fields=["port"])
    _lease_more(row, serving_settings.read(revision.settings), servers)
    job = serve_jobs.start(row, by=_by(seen))
    Replica.objects.filter(pk=row.pk).update(serve_job=job, state=ReplicaState.STARTING)
    return row


def hold(candidate: Candidate) -> dict[int, Server]:
    """Its servers by number, locked. Raises Conflict where one is no more."""
    servers = lock_servers(_npus(candidate))
    if len(servers) < len(_npus(candidate)):
        raise Conflict(_("The server is no more."), _("Choose another one, then try again."), code="server_gone")
    return servers


def _npus(candidate: Candidate) -> dict[int, list[str]]:
    """{server id: names of its NPUs}, all servers of the replica."""
    if not candidate.nodes:
        return {candidate.pk: list(candidate.npus)}
    return {node.pk: list(node.npus) for node in candidate.nodes}


def _nodes(candidate: Candidate, servers: Mapping[int, Server]) -> list[dict[str, Any]]:
    """As Replica.nodes has them."""
    return [
        {"server": node.pk, "name": node.server, "npus": list(node.npus), "rank": rank,
         "address": ports.address_of(servers[node.pk])}
        for rank, node in enumerate(candidate.nodes)
    ]  # fmt: skip


def _lease_more(row: Replica, wanted: Settings, servers: Mapping[int, Server]) -> None:
    """Ports by which the parts of one replica find each other: on its first server, and each server's own for HCCL."""
    if wanted.data_parallel_size > 1:
        ports.lease(row.server, replica=row, purpose="dp")
    if len(row.nodes) > 1:
        ports.lease(row.server, replica=row, purpose="ray" if wanted.backend == "ray" else "dp")
        for server in servers.values():
            ports.lease(server, replica=row, purpose="hccl")


def _by(seen: Picture) -> Any:
    by = (seen.deployment.revision.by if seen.deployment.revision else None) or seen.deployment.owner
    if by is None:
        raise NoRoom(reconcile_reasons.NOBODY)
    return by
