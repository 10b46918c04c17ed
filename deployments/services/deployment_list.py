"""The list of deployments: filters, pages, what their engines do now. A fixed number of queries for any number."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Coalesce

from deployments.models import (
    GONE,
    SERVING,
    Artifact,
    Deployment,
    ExternalEngine,
    Replica,
    ReplicaState,
    Server,
)
from deployments.services import deployment_json, endpoints, engine_figures, paging
from deployments.services.paging import FLEETS, PAGE, Page, one_of, text

SHOWN_SERVERS = 3
STATES = ("ready", "degraded", "rolling_out", "scaling", "starting", "failed", "stopping", "stopped", "paused")
ORDER = [str(state) for state in ("ready", "degraded", "loading", "starting", "planned", "draining", "failed")]


@dataclass(frozen=True)
class Filters(paging.Filters):
    """What is asked for; '' excludes nothing. `label` is "key" or "key=value"."""

    q: str = ""
    state: str = ""
    label: str = ""
    model: str = ""
    owner: str = ""
    fleet: str = ""
    server: str = ""
    page: int = 1


@dataclass(frozen=True)
class Line:
    """One deployment as the list shows it. `replicas` are those that hold something."""

    deployment: Deployment
    replicas: Sequence[Replica]
    state: str
    figures: engine_figures.Figures

    @property
    def serving(self) -> int:
        return sum(one.state in SERVING for one in self.replicas)

    @property
    def counts(self) -> list[tuple[str, int]]:
        """(state, how many replicas are in it), the good ones first."""
        found = Counter(one.state for one in self.replicas)
        return [(state, found[state]) for state in ORDER if found[state]]

    @property
    def npus(self) -> int:
        return sum(len(names) for one in self.replicas for _server, names in places(one))

    @property
    def servers(self) -> list[str]:
        return list(dict.fromkeys(name for one in self.replicas for name, _npus in places(one)))

    @property
    def shown_servers(self) -> list[str]:
        return self.servers[:SHOWN_SERVERS]

    @property
    def more_servers(self) -> int:
        return max(0, len(self.servers) - SHOWN_SERVERS)

    @property
    def endpoint(self) -> str:
        return endpoints.of(self.deployment, self.replicas)


def places(replica: Replica) -> list[tuple[str, list[str]]]:
    """(server's name, names of its NPUs) of each server that a replica runs on."""
    if not replica.nodes:
        return [(replica.server.name, replica.npus)]
    return [(str(one.get("name", "")), list(one.get("npus") or [])) for one in replica.nodes if isinstance(one, dict)]


def read_filters(given: Mapping[str, str]) -> Filters:
    """Values that are none of their list are left out."""

    return Filters(
        q=text(given, "q", 200), state=one_of(given, "state", STATES),
        label=text(given, "label", 130), model=text(given, "model", 200), owner=text(given, "owner", 150),
        fleet=one_of(given, "fleet", FLEETS), server=text(given, "server", 63),
        page=paging.page_number(given),
    )  # fmt: skip


def page(filters: Filters, size: int = PAGE) -> Page[Line]:
    """By name, real ones first."""
    rows = found(filters)
    total = rows.count()
    number = min(filters.page, paging.last(total, size))
    rows = rows.select_related("revision__artifact", "owner", "gateway__server").order_by("simulated", "name")
    rows = rows.defer("gateway__server__facts", "gateway__server__notes")
    return Page(lines(list(rows[(number - 1) * size : number * size])), total, number)


def lines(deployments: Sequence[Deployment]) -> list[Line]:
    """Two queries, and one call of Redis."""
    every: dict[int, list[Replica]] = defaultdict(list)
    tried = Coalesce("deployment__tried_at", "deployment__created_at")
    rows = Replica.objects.filter(deployment__in=deployments).alias(tried=tried).select_related("server")
    rows = rows.filter(~Q(state__in=GONE) | Q(state=ReplicaState.FAILED, ended_at__gte=F("tried")))
    for one in rows.defer("server__facts", "server__notes", "findings", "why", "engine").order_by("n"):
        every[one.deployment_id].append(one)
    now = engine_figures.read(one for some in every.values() for one in some)
    return [_line(one, every[one.pk], now) for one in deployments]


def _line(deployment: Deployment, rows: Sequence[Replica], now: engine_figures.Now) -> Line:
    there = [one for one in rows if one.state not in GONE]
    return Line(deployment, there, deployment_json.state_of(deployment, rows), engine_figures.whole(there, now))


def found(filters: Filters) -> QuerySet[Deployment]:
    rows = Deployment.objects.present()
    if filters.q:
        rows = rows.filter(_words(filters.q))
    if filters.model:
        rows = rows.filter(revision__artifact__name__icontains=filters.model)
    if filters.owner:
        rows = rows.filter(owner__username=filters.owner)
    if filters.fleet:
        rows = rows.filter(simulated=filters.fleet == "simulated")
    if filters.server:
        here = Replica.objects.there().filter(server__name=filters.server)
        rows = rows.filter(pk__in=here.values("deployment"))
    if filters.label:
        key, has_value, value = filters.label.partition("=")
        rows = rows.filter(labels__has_key=key)
        if has_value:
            rows = rows.annotate(label_value=KeyTransform(key, "labels")).filter(label_value=value)
    return _in_state(rows, filters.state) if filters.state else rows


def _in_state(rows: QuerySet[Deployment], state: str) -> QuerySet[Deployment]:
    """The same as deployment_json.state_of, in the database."""
    if state == "paused":
        return rows.filter(paused=True)
    every = Replica.objects.filter(deployment=OuterRef("pk"))
    there = Exists(every.exclude(state__in=GONE))
    idle = Q(stopped=True) | Q(replicas=0)
    if state in ("stopping", "stopped"):
        return rows.filter(idle, there if state == "stopping" else ~there)
    rows = rows.exclude(idle)
    if state == "rolling_out":
        return rows.filter(rollout__isnull=False)
    rows = rows.filter(rollout__isnull=True).annotate(
        serving=Count("replica_set", filter=Q(replica_set__state__in=SERVING))
    )
    ill = Exists(every.filter(state=ReplicaState.DEGRADED))
    failed = Exists(
        every.filter(state=ReplicaState.FAILED, ended_at__gte=Coalesce(OuterRef("tried_at"), OuterRef("created_at")))
    )
    gone = Q(failed, ~there)
    anew = Exists(every.filter(state__in=deployment_json.COMING, ready_at__isnull=False))
    grows = Q(~ill, ~anew, ~failed, reason__isnull=True)
    wanted = {
        "ready": Q(~ill, serving__gte=F("replicas")),
        "scaling": Q(grows, serving__gt=0, serving__lt=F("replicas")),
        "degraded": Q(ill, serving__gte=F("replicas")) | Q(~grows, serving__gt=0, serving__lt=F("replicas")),
        "starting": Q(~gone, serving=0),
        "failed": Q(gone, serving=0),
    }
    return rows.filter(wanted[state])


def _words(text: str) -> Q:
    """Every word stands in the name, the title, the notes, the model's name or the name that clients say."""
    wanted = Q()
    for word in text.split()[:8]:
        wanted &= (
            Q(name__icontains=word)
            | Q(title__icontains=word)
            | Q(notes__icontains=word)
            | Q(revision__artifact__name__icontains=word)
            | Q(revision__settings__served_model_name__icontains=word)
        )
    return wanted


def of_model(artifact: Artifact) -> list[Line]:
    """Deployments whose present revision serves that model."""
    rows = Deployment.objects.present().filter(revision__artifact=artifact)
    return lines(list(rows.select_related("revision__artifact", "gateway").order_by("name")[:PAGE]))


def on_server(server: Server) -> list[Replica]:
    """Replicas that hold something of that server, those of several servers too; deployment and revision at hand."""
    here = Replica.objects.there().filter(Q(server=server) | Q(reservations__server=server)).distinct()
    return list(here.select_related("deployment", "revision").order_by("deployment__name", "n")[:PAGE])


def external_count() -> int:
    """Engines that the console did not start and that run now."""
    return ExternalEngine.objects.filter(gone_at=None).count()
