"""What a support bundle can be about: a job, a replica, a deployment, a server, an alert; and which servers and logs
belong to it."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.urls import Resolver404, resolve, reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from console.errors import Invalid, NotFound
from console.models import Alert
from deployments import kinds
from deployments.models import Deployment, EngineLog, Job, Replica, Server
from deployments.services.support_bundles import Subject
from deployments.steps import Text

MOST_PIECES = 8  # of each replica, newest first
MOST_REPLICAS = 16


def read(job: int | None = None, server: str = "", deployment: str = "", replica: int | None = None,
         alert: int | None = None) -> Subject:  # fmt: skip
    """Of what an address or a call names. Raises NotFound, and Invalid where it names nothing."""
    if alert is not None:
        return of_alert(_one(Alert, pk=alert))
    if job is not None:
        return of_job(_one(Job, pk=job))
    if deployment:
        row = _one(Deployment, name=deployment[:63], deleted_at=None)
        return of_deployment(row) if replica is None else of_replica(_one(Replica, deployment=row, n=replica))
    if server:
        return of_server(_one(Server, name=server[:63]))
    raise Invalid(
        _("It was not said what the support bundle is about."),
        _("Name a job, a deployment, a server or an alert."),
        code="no_subject",
    )


def _one(model: Any, **wanted: Any) -> Any:
    """Raises NotFound."""
    rows = model._default_manager.filter(**wanted)
    small = all(not isinstance(value, int) or abs(value) < 2**63 for value in wanted.values())
    row = rows.first() if small else None
    if row is None:
        raise NotFound(
            _("What the support bundle is to be about is not there."),
            _("Open the page of the job, deployment or server, and begin there."),
            code="no_such_subject",
        )
    return row


def of_job(job: Job) -> Subject:
    title = kinds.load(job.kind).TITLE if job.kind in kinds.names() else Text(job.kind, job.kind)
    seen = job.ended_at or timezone.now()
    replicas = Replica.objects.filter(serve_job=job).select_related("server")
    return Subject(
        title=Text(f"作业 #{job.pk} {title.zh}", f"Job #{job.pk} {title.en}"),
        link=reverse("deployments:job-detail", args=[job.pk]),
        servers=[job.server],
        seen_at=seen,
        job=job,
        engines=_engines(replicas),
        logs=(*job.attempts.order_by("n").values_list("pk", flat=True), *_pieces(replicas)),
    )


def of_replica(replica: Replica) -> Subject:
    deployment = replica.deployment
    return Subject(
        title=Text(f"{deployment.name} 的副本 {replica.n}", f"{deployment.name}, replica {replica.n}"),
        link=reverse("deployments:replica-log", args=[deployment.name, replica.n]),
        servers=_servers([replica]),
        seen_at=replica.ended_at or timezone.now(),
        deployment=deployment,
        engines=_engines([replica]),
        logs=(*_pieces([replica]), *_jobs_of([replica])),
    )


def of_deployment(deployment: Deployment) -> Subject:
    """Its replicas, those that are there first, else the last that ended."""
    rows = Replica.objects.filter(deployment=deployment)
    every = list(rows.select_related("server").order_by("-n")[:200])
    there = [one for one in every if one.ended_at is None] or every[:1]
    chosen = there[:MOST_REPLICAS]
    return Subject(
        title=Text(f"部署 {deployment.name}", f"Deployment {deployment.name}"),
        link=reverse("deployments:deployment-detail", args=[deployment.name]),
        servers=_servers(chosen),
        seen_at=_latest(one.ended_at for one in chosen),
        deployment=deployment,
        engines=_engines(chosen),
        logs=(*_pieces(chosen), *_jobs_of(chosen)),
    )


def of_server(server: Server) -> Subject:
    """With the logs of its last jobs that failed."""
    failed = server.jobs.filter(state="failed").order_by("-pk")[:3]
    replicas = list(Replica.objects.filter(server=server, ended_at=None)[:MOST_REPLICAS])
    logs = [key for job in failed for key in job.attempts.order_by("-n").values_list("pk", flat=True)[:1]]
    return Subject(
        title=Text(f"服务器 {server.name}", f"Server {server.name}"),
        link=reverse("monitoring:server-detail", args=[server.name]),
        servers=[server],
        seen_at=timezone.now(),
        logs=(*logs, *_pieces(replicas)),
    )


def of_alert(alert: Alert) -> Subject:
    """What its link leads to, when it fired last. Raises Invalid where that is no server, job or deployment."""
    try:
        found = resolve(alert.link.partition("?")[0].partition("#")[0])
    except Resolver404:
        found = None
    name, given = (found.url_name or "", found.kwargs) if found else ("", {})
    if name == "job-detail":
        subject = of_job(_one(Job, pk=given["pk"]))
    elif name.startswith("replica"):
        subject = read(deployment=given["name"], replica=given["n"])
    elif name.startswith("deployment") and "name" in given:
        subject = read(deployment=given["name"])
    elif name.startswith("server") and "name" in given:
        subject = read(server=given["name"])
    else:
        raise Invalid(
            _("This alert is about no server, job or deployment."),
            _("Make the support bundle from the page of a server."),
            code="no_subject",
        )
    zh, en = alert.what
    return Subject(
        Text(f"告警：{zh}"[:300], f"Alert: {en}"[:300]), subject.link, subject.servers, alert.last_at, subject.job,
        subject.deployment, subject.engines, subject.logs,
    )  # fmt: skip


def _latest(moments: Iterable[datetime | None]) -> datetime:
    known = [one for one in moments if one]
    return max(known) if known else timezone.now()


def _servers(replicas: Iterable[Replica]) -> list[Server]:
    wanted = {pk for one in replicas for pk in one.server_ids}
    return list(Server.objects.filter(pk__in=wanted).order_by("name"))


def _engines(replicas: Iterable[Replica]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for one in replicas:
        for pk in one.server_ids:
            found.setdefault(pk, []).append(f"e{one.pk}")
    return found


def _pieces(replicas: Iterable[Replica]) -> list[str]:
    found: dict[int, list[str]] = {}
    rows = EngineLog.objects.filter(replica__in=[one.pk for one in replicas]).order_by("replica", "-n")
    for pk, replica in rows.values_list("pk", "replica"):
        found.setdefault(replica, []).append(pk)
    return [pk for pieces in found.values() for pk in pieces[:MOST_PIECES]]


def _jobs_of(replicas: Iterable[Replica]) -> list[str]:
    """The last attempts of the jobs that started them."""
    rows = Job.objects.filter(serves__in=[one.pk for one in replicas]).distinct().prefetch_related("attempts")
    return [list(job.attempts.all())[-1].pk for job in rows if job.attempts.all()]
