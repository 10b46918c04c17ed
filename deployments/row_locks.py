"""Locks on rows, always in one order, so that two transactions never wait for each other: batch or deployment, then
server (several by their numbers), then whatever belongs to the server: its attempts, jobs, replicas, rotation,
enrolments.

The row of the server is the mutex of all that is decided about it. FOR NO KEY UPDATE excludes other deciders alone:
who only writes a row that points to the server, an entry of its history for instance, need not wait.
"""

from collections.abc import Iterable

from deployments.models import Artifact, Deployment, Gateway, Job, Replica, Server


def lock_server(pk: int) -> Server:
    """The server's row as it is now, locked until the caller's transaction ends. Raises Server.DoesNotExist."""
    return Server.objects.select_for_update(no_key=True).get(pk=pk)


def lock_servers(pks: Iterable[int]) -> dict[int, Server]:
    """{id: server} of those there are, all of them locked; their facts are read when they are asked for."""
    return Server.objects.select_for_update(no_key=True).defer("facts").order_by("pk").in_bulk(set(pks))


def hold_servers(pks: Iterable[int]) -> None:
    """Lock the rows of many servers without reading them: who writes several in one transaction does so first."""
    rows = Server.objects.select_for_update(no_key=True).filter(pk__in=set(pks)).order_by("pk")
    for _pk in rows.values_list("pk").iterator():
        pass


def lock_job(pk: int) -> Job:
    """The job's row with `server` and `requester` at hand, locked after its server's. Raises Job.DoesNotExist."""
    server = lock_server(Job.objects.only("server_id").get(pk=pk).server_id)
    job = Job.objects.select_for_update(no_key=True, of=("self",)).select_related("requester").get(pk=pk)
    job.server = server
    return job


def lock_artifact(pk: int) -> Artifact:
    """The artifact's row as it is now, locked after every server's. Raises Artifact.DoesNotExist."""
    return Artifact.objects.select_for_update(no_key=True).get(pk=pk)


def lock_deployment(pk: int) -> Deployment:
    """The deployment's row as it is now with its revision, locked before any server. Raises DoesNotExist."""
    rows = Deployment.objects.select_for_update(no_key=True, of=("self",)).select_related("revision", "owner")
    return rows.get(pk=pk)


def lock_replica(pk: int) -> Replica:
    """The replica's row as it is now, locked after those of all its servers. Raises Replica.DoesNotExist."""
    seen = Replica.objects.only("server_id", "nodes").get(pk=pk)
    hold_servers(seen.server_ids)
    rows = Replica.objects.select_for_update(no_key=True, of=("self",))
    return rows.select_related("server", "deployment", "revision", "serve_job", "stop_job").get(pk=pk)


def lock_gateway(pk: int) -> Gateway:
    """The gateway with `server` and `deployment` at hand, locked after its server. Raises Gateway.DoesNotExist."""
    server = lock_server(Gateway.objects.only("server_id").get(pk=pk).server_id)
    gateway = Gateway.objects.select_for_update(no_key=True, of=("self",)).select_related("deployment").get(pk=pk)
    gateway.server = server
    return gateway
