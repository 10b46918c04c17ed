"""What the page of one deployment shows: its replicas with their NPUs, its revisions, where it is asked, what can be
done. A fixed number of queries, however many replicas and revisions there are."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from deployments.models import (
    GONE,
    SERVING,
    Artifact,
    Deployment,
    Job,
    Npu,
    Replica,
    ReplicaState,
    Reservation,
    Revision,
)
from deployments.services import deployment_json, deployment_list, endpoints, engine_figures
from deployments.serving import settings

MOST_GONE, MOST_REVISIONS, MOST_JOBS = 6, 30, 6
OF_A_REPLICA = ("serve", "stop", "restart")  # kinds whose jobs name a replica


class Square(NamedTuple):
    """One NPU of a server, in the order printed: `css` is held (by this replica), other (promised to somebody else)
    or free; `x` is where it is drawn."""

    css: str
    x: int
    name: str


@dataclass(frozen=True)
class Spot:
    """A server that a replica runs on. `npus`: its NPUs there by number, or by name where the server has no such."""

    server: str
    simulated: bool
    squares: Sequence[Square]
    npus: Sequence[str]

    @property
    def width(self) -> int:
        return self.squares[-1].x + 10 if self.squares else 0


@dataclass(frozen=True)
class Line:
    """One replica as the page shows it. `steps`: (state, "done" | "now" | "next") of its way up, [] when it is up."""

    replica: Replica
    spots: Sequence[Spot]
    figures: engine_figures.Figures
    jobs: Sequence[Job]
    since: datetime

    @property
    def steps(self) -> list[tuple[str, str]]:
        way = [ReplicaState.PLANNED, ReplicaState.STARTING, ReplicaState.LOADING, ReplicaState.READY]
        if self.replica.state not in way or self.replica.state == ReplicaState.READY:
            return []
        at = way.index(ReplicaState(self.replica.state))
        return [(str(one), "done" if n < at else "now" if n == at else "next") for n, one in enumerate(way)]

    @property
    def progress(self) -> Mapping[str, Any] | None:
        """{"what": [zh, en], "done", "of"} while it is known."""
        told = self.replica.progress
        return told if isinstance(told, dict) and isinstance(told.get("what"), list) else None

    @property
    def pct(self) -> int | None:
        """How far its progress is, 0 … 100; None where that is not known."""
        told = self.progress
        done, of = (told.get("done"), told.get("of")) if told else (None, None)
        return min(100, round(100 * done / of)) if done is not None and of else None

    @property
    def running(self) -> int:
        return int(self.figures.running or 0)

    @property
    def left(self) -> int | None:
        """Seconds that its running requests still get."""
        return left(self.replica.drain_until)

    @property
    def until_ms(self) -> int:
        """When that is over, for the page's own clock."""
        return int(self.replica.drain_until.timestamp() * 1000) if self.replica.drain_until else 0

    @property
    def reason(self) -> Any:
        """[zh, en], why it is as it is; None where its first finding says the same."""
        found = self.findings
        return None if found and found[0]["cause"] == self.replica.reason else self.replica.reason

    @cached_property
    def findings(self) -> list[Mapping[str, Any]]:
        """What its log says went wrong, with what helps; [] where it serves well."""
        if self.replica.state == ReplicaState.READY or not isinstance(self.replica.findings, list):
            return []
        found = [one for one in self.replica.findings if isinstance(one, dict) and isinstance(one.get("cause"), list)]
        return [{**one, "remedies": _dicts(one, "remedies")} for one in found]

    @property
    def remedy_page(self) -> str:
        """Where a remedy becomes a revision or a job; '' where there is nothing to remedy."""
        if not self.findings:
            return ""
        return reverse("deployments:replica-remedy", args=[self.replica.deployment.name, self.replica.n])

    @property
    def facts(self) -> Mapping[str, Any]:
        told = self.replica.engine.get("facts") if isinstance(self.replica.engine, dict) else None
        return told if isinstance(told, dict) else {}


def _dicts(told: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    listed = told.get(name)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


@dataclass(frozen=True)
class Version:
    """One revision; `changes` are to the one before it, `restarts` the replicas that going back to it would restart."""

    revision: Revision
    changes: Sequence[settings.Change]
    artifact_change: tuple[str, str] | None
    restarts: Sequence[int]
    current: bool


@dataclass(frozen=True)
class Page:
    deployment: Deployment
    lines: Sequence[Line]
    gone: Sequence[Line]
    versions: Sequence[Version]
    more_versions: int = 0
    figures: engine_figures.Figures = field(default_factory=engine_figures.Figures)

    @property
    def replicas(self) -> list[Replica]:
        return [line.replica for line in self.lines]

    @cached_property
    def state(self) -> str:
        return deployment_json.state_of(self.deployment, [*self.replicas, *(line.replica for line in self.gone)])

    @property
    def serving(self) -> int:
        return sum(line.replica.state in SERVING for line in self.lines)

    @property
    def has_failed(self) -> bool:
        """Whether replicas have failed, or a rollout stands, and nobody has tried again since."""
        tried, stuck = self.deployment.tried_at or self.deployment.created_at, self.deployment.rollout or {}
        failed = [one.replica for one in self.gone if one.replica.state == ReplicaState.FAILED]
        return stuck.get("phase") == "stuck" or any(one.ended_at and one.ended_at >= tried for one in failed)

    @property
    def counts(self) -> list[tuple[str, int]]:
        """(state, how many) of those that do not serve."""
        found = Counter(one.state for one in self.replicas if one.state not in SERVING)
        return [(state, found[state]) for state in deployment_list.ORDER if found[state]]

    @property
    def newest(self) -> Line | None:
        """The replica that is on its way up, the last of them."""
        return next((line for line in reversed(self.lines) if line.steps), None)

    @property
    def last_start_s(self) -> float | None:
        """How long the last start took that ended well, as a measure for one under way; None where none is shown."""
        rows = [line.replica for line in (*self.lines, *self.gone)]
        ready = [(row.ready_at, row.serve_job.created_at) for row in rows if row.ready_at and row.serve_job]
        at, began = max(ready, default=(None, None))
        return max(0.0, (at - began).total_seconds()) if at and began else None

    @cached_property
    def endpoint(self) -> str:
        return endpoints.of(self.deployment, self.replicas)

    @property
    def by_gateway(self) -> bool:
        return endpoints.standing(self.deployment) is not None

    @property
    def type(self) -> str:
        """Of the model's weights; '' where nobody knows."""
        artifact = self.deployment.revision.artifact if self.deployment.revision else None
        return str(artifact.summary.get("quant_type") or artifact.summary.get("dtype") or "") if artifact else ""

    @property
    def model_name(self) -> str:
        """The name that clients say."""
        given = self.deployment.revision.settings if self.deployment.revision else {}
        return str(given.get("served_model_name") or self.deployment.name)


def of(deployment: Deployment) -> Page:
    every = list(
        deployment.replica_set.filter(Q(pk__in=_last_gone(deployment)) | ~Q(state__in=GONE))
        .select_related("server", "revision", "serve_job", "stop_job")
        .defer("server__facts", "server__notes")
        .order_by("n")
    )
    for one in every:
        one.deployment = deployment
    draw, jobs, now = _drawer(every), _jobs(every), engine_figures.read(every)
    lines = [Line(one, draw(one), engine_figures.of(one, now), jobs[one.pk], _since(one)) for one in every]
    there = [line for line in lines if line.replica.state not in GONE]
    gone = [line for line in reversed(lines) if line.replica.state in GONE]
    versions, more = _versions(deployment, [line.replica for line in there])
    whole = engine_figures.whole(every, now)
    return Page(deployment, there, gone, versions, more, whole)


def _last_gone(deployment: Deployment) -> list[int]:
    rows = deployment.replica_set.filter(state__in=GONE).order_by("-n")
    return list(rows.values_list("pk", flat=True)[:MOST_GONE])


def _since(replica: Replica) -> datetime:
    """When it got into its state, as far as that is written down."""
    if replica.state in GONE and replica.ended_at:
        return replica.ended_at
    return replica.ready_at if replica.state in SERVING and replica.ready_at else replica.created_at


def _drawer(replicas: Sequence[Replica]) -> Any:
    """A function that draws the servers of a replica with the NPUs it holds. Two queries for all."""
    names = {name for one in replicas for name, _npus in deployment_list.places(one)}
    npus: dict[str, list[Npu]] = defaultdict(list)
    for npu in Npu.objects.filter(server__name__in=names).select_related("server").order_by("server", "device_index"):
        npus[npu.server.name].append(npu)
    holders = {
        (server, npu): replica
        for server, npu, replica in Reservation.objects.filter(server__name__in=names).values_list(
            "server__name", "npu", "replica"
        )
    }

    def draw(replica: Replica) -> list[Spot]:
        return [_spot(replica, name, held, npus[name], holders) for name, held in deployment_list.places(replica)]

    return draw


def _spot(
    replica: Replica, server: str, held: Sequence[str], npus: Sequence[Npu],
    holders: Mapping[tuple[str, str], int | None],
) -> Spot:  # fmt: skip
    squares, numbers = [], []
    shared = Counter(npu.bus_id for npu in npus)
    for n, npu in enumerate(npus):
        name = f"{npu.bus_id}/{npu.chip_id}" if shared[npu.bus_id] > 1 else str(npu.bus_id)
        mine = name in held
        css = "held" if mine else "other" if (server, name) in holders else "free"
        squares.append(Square(css, 12 * n + 3 * (n // 4), name))
        if mine:
            numbers.append(str(npu.device_index))
    return Spot(server, replica.server.simulated, squares, numbers if len(numbers) == len(held) else list(held))


def _jobs(replicas: Sequence[Replica]) -> Mapping[int, list[Job]]:
    """The last jobs of each replica, newest first."""
    found: dict[int, list[Job]] = defaultdict(list)
    keys = [one.pk for one in replicas]
    rows = Job.objects.filter(kind__in=OF_A_REPLICA, params__replica__in=keys).order_by("-pk")
    for job in rows.only("pk", "kind", "state", "params", "created_at", "server_id")[: MOST_JOBS * max(1, len(keys))]:
        if len(found[job.params["replica"]]) < MOST_JOBS:
            found[job.params["replica"]].append(job)
    return found


def _versions(deployment: Deployment, there: Iterable[Replica]) -> tuple[list[Version], int]:
    """(the newest first, how many older ones there are)."""
    rows = list(deployment.revisions.select_related("artifact", "by").order_by("-n")[: MOST_REVISIONS + 1])
    numbers, made = [(one.n, one.revision_id) for one in there], []
    for n, row in enumerate(rows[:MOST_REVISIONS]):
        before = rows[n + 1] if n + 1 < len(rows) else None
        changes = settings.diff(before.settings, row.settings) if before else []
        moved = before is not None and (before.artifact_id, before.fingerprint) != (row.artifact_id, row.fingerprint)
        other = (_name(before.artifact), _name(row.artifact)) if before is not None and moved else None
        hit = [replica for replica, revision in numbers if revision != row.pk]
        made.append(Version(row, changes, other, hit, row.pk == deployment.revision_id))
    return made, max(0, (rows[0].n if rows else 0) - MOST_REVISIONS)


def _name(artifact: Artifact | None) -> str:
    return artifact.name if artifact else "—"


def left(until: datetime | None) -> int | None:
    """Seconds until then, 0 when it is over."""
    return None if until is None else max(0, round((until - timezone.now()).total_seconds()))
