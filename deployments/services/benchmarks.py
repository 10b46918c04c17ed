"""Benchmarks of deployments: queue one, take what its job tells, list, compare.

What was told is a server's word. The verdict is made here, from the numbers and the targets that were asked for.
"""

import base64
import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit, untrusted
from console.errors import Conflict, Invalid, NotFound
from console.language import pick
from console.models import User
from deployments.agent import signing
from deployments.kinds import benchmark as kind
from deployments.models import Attempt, Benchmark, Deployment, Gateway, Job, Replica, Server
from deployments.models.deployment import SERVING
from deployments.models.job import ENDED
from deployments.services import endpoints, filling, jobs, stacks, told
from deployments.serving import bench, command
from deployments.serving import settings as serving_settings
from deployments.serving.bench import Point, Targets, Verdict
from deployments.steps import BadParams, read_params

KIND = "benchmark"
GUIDE = {"target_concurrency": 120, "target_tpot_ms": 15}  # what guides ask for, offered as an example
MOST_ROWS = 200
RATES = ("duration_s", "requests_s", "output_tokens_s", "total_tokens_s")
TIMES = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")
CPU_DEGREES, NPU_DEGREES = "1, 2, 4, 8", "1, 4, 16, 64, 120"


class Untold(ValueError):
    """What was told is no part of a benchmark."""


def find_deployment(name: str) -> Deployment:
    """Raises NotFound."""
    row = Deployment.objects.present().select_related("revision").filter(name=name[:63]).first()
    if row is None:
        raise NotFound(
            _("There is no deployment called %(name)s.") % {"name": name[:63]},
            _("Choose one from the list of deployments."),
            code="unknown_deployment",
        )
    return row


def find(pk: int) -> Benchmark:
    """Raises NotFound."""
    rows = Benchmark.objects.select_related("deployment", "revision", "replica", "job__server", "by")
    row = rows.filter(pk=pk).first() if 0 < pk < 2**63 else None
    if row is None:
        raise NotFound(
            _("There is no benchmark #%(id)s.") % {"id": pk}, _("Open it from the page of its deployment."),
            code="no_such_benchmark",
        )  # fmt: skip
    return row


# ---------- asking ----------


def replicas(deployment: Deployment) -> list[Replica]:
    """Those that answer, best first."""
    rows = deployment.replica_set.filter(state__in=SERVING).select_related("server", "revision", "revision__artifact")
    return sorted(rows, key=lambda one: (one.state != "ready", one.server.is_offline, one.n))


def gateway_of(deployment: Deployment) -> Gateway | None:
    return Gateway.objects.filter(deployment=deployment, state__in=("ready", "degraded")).first()


def defaults(replica: Replica | None) -> dict[str, Any]:
    """What a form begins with: lengths that fit the context, degrees that the device can take."""
    context = context_of(replica) if replica else 0
    on_cpu = _device(replica) == "cpu" if replica else False
    found: dict[str, Any] = {"degrees": CPU_DEGREES if on_cpu else NPU_DEGREES, "prompts": 16 if on_cpu else 128}
    if context:
        found |= {"input_len": max(1, min(1024, context // 2)), "output_len": max(1, min(128, context // 4))}
    return found


def context_of(replica: Replica) -> int:
    """Tokens of a request that the engine takes; 0 where it is not known."""
    facts = replica.engine.get("facts") if isinstance(replica.engine, dict) else None
    told_of = (facts or {}).get("max_model_len") or replica.revision.settings.get("max_model_len")
    return untrusted.whole(told_of, 10**8) or 0


def _device(replica: Replica) -> str:
    return "cpu" if replica.revision.settings.get("device") == "cpu" or not replica.npus else "npu"


def load_of(replica: Replica) -> int | None:
    """Requests that it has now; None where it is not known."""
    metrics = replica.engine.get("metrics") if isinstance(replica.engine, dict) else None
    counts = [untrusted.whole((metrics or {}).get(name), 10**9) for name in ("running", "waiting")]
    return None if counts[0] is None else (counts[0] or 0) + (counts[1] or 0)


def queue(
    deployment: Deployment, params: dict[str, Any], *, by: User, gateway_key: str | None = None, ticket: str = ""
) -> Benchmark:
    """The job and its row. `params` are those of the kind; without a replica the first that is ready.

    With `gateway_key` (which may be '') it asks the deployment's gateway, with that key. Raises Conflict, Invalid.
    """
    replica = _chosen(deployment, params.get("replica"))
    given = {name: value for name, value in params.items() if name != "sealed_key"} | {"replica": replica.pk}
    if gateway_key is not None:
        given |= {"through": "gateway", "sealed_key": _sealed(replica.server, gateway_key)}
    with transaction.atomic():
        job = jobs.queue_job(replica.server, KIND, given, by=by, ticket=ticket)
        row, _new = Benchmark.objects.get_or_create(job=job, defaults=_fields(job, replica, by))
        audit.record(by, "benchmark.queued", deployment, benchmark=row.pk, job=job.pk)
    return row


def _chosen(deployment: Deployment, wanted: Any) -> Replica:
    there = replicas(deployment)
    found = next((one for one in there if wanted in (None, "", one.pk)), None)
    if found is None:
        raise Conflict(
            _("%(name)s has no such replica that answers.") % {"name": deployment.name}
            if there
            else _("%(name)s has no replica that answers.") % {"name": deployment.name},
            _("Start the deployment and wait until a replica is ready, then measure it."),
            code="no_replica",
        )
    return found


def _fields(job: Job, replica: Replica | None, by: User | None) -> dict[str, Any]:
    asked = {name: value for name, value in filling.asked(job).items() if name != "sealed_key"}
    deployment = replica.deployment if replica else Deployment.objects.get(pk=job.params.get("deployment"))
    targets = _targets(job.params).as_json()
    return {"deployment": deployment, "revision": replica.revision if replica else None, "replica": replica,
            "asked": asked, "targets": targets, "by": by}  # fmt: skip


def _targets(params: dict[str, Any]) -> Targets:
    try:
        return kind.targets_of(read_params(kind.Params, params))
    except BadParams:
        return Targets()  # of an older console


def fill(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """Which engine it is and how it is reached. Raises Invalid, Conflict."""
    replica = Replica.objects.select_related("deployment", "revision__artifact").filter(
        pk=untrusted.whole(params.get("replica"), 2**62) or 0, server=server
    ).first()  # fmt: skip
    if replica is None or replica.state not in SERVING:
        raise Conflict(
            _("No replica with the id %(id)s answers on %(server)s.")
            % {"id": params.get("replica"), "server": server.name},
            _("Choose a replica that is ready."),
            code="no_replica",
        )
    url, sealed = endpoints.base_url(replica.address, replica.port), _sealed(server, replica.deployment.api_key)
    if params.get("through") == "gateway":
        gateway = gateway_of(replica.deployment)
        if gateway is None:
            raise Conflict(
                _("%(name)s has no gateway that answers.") % {"name": replica.deployment.name},
                _("Start its gateway, or measure a replica."),
                code="no_gateway",
            )
        url, sealed = endpoints.base_url(gateway.address, gateway.port), str(params.get("sealed_key", ""))
    found = {
        "deployment": replica.deployment_id,
        "base_url": url,
        "model": served_name(replica),
        "tokenizer": replica.path,
        "sealed": sealed,
        "stacks": stacks.row_of(server).has.root,
        "device": _device(replica),
        "context": context_of(replica),
    }
    check({**params, **found})
    return found


def served_name(replica: Replica) -> str:
    """What requests name as their model."""
    try:
        return command.name(serving_settings.read(replica.revision.settings), replica.path)
    except BadParams:
        return str(replica.revision.settings.get("served_model_name") or replica.deployment.name)


def _sealed(server: Server, api_key: str) -> str:
    if len(api_key) > 200 or not api_key.isprintable():
        raise Invalid(_("This is no API key."), _("Copy the key anew."), code="bad_key")
    return base64.b64encode(signing.seal(server.key, json.dumps({"api_key": api_key}).encode())).decode()


def check(params: dict[str, Any]) -> None:
    """Raises Invalid for what does not go together."""
    try:
        kind.degrees_of(read_params(kind.Params, params))
    except BadParams as error:
        what = "; ".join(f"{name}: {pick(text)}" for name, text in error.problems)
        raise Invalid(
            _("The parameters do not fit: %(problems)s.") % {"problems": what},
            _("Mend them and send the job again."),
            code="invalid_params",
        ) from error


filling.FILLERS |= {KIND: fill}


# ---------- taking ----------


@told.handles("benchmark_point")
def point_told(attempt: Attempt, data: dict[str, Any]) -> None:
    """One degree; measured again in a retry it replaces what was."""
    row, new = _row(attempt), point_of(data)
    rest = [one for one in row.points if one.get("concurrency") != new.concurrency]
    row.points = sorted([*rest, new.as_json()], key=lambda one: one["concurrency"])[: bench.MOST_DEGREES]
    row.ended_at = row.passed = None
    row.save(update_fields=["points", "ended_at", "passed"])


@told.handles("benchmark")
def benchmark_told(attempt: Attempt, data: dict[str, Any]) -> None:
    """The end of it: the verdict follows from its points."""
    row = _row(attempt)
    wanted = [untrusted.whole(one, bench.MOST_DEGREE) for one in data.get("degrees") or []][: bench.MOST_DEGREES]
    missing = set(filter(None, wanted)) - {one["concurrency"] for one in row.points}
    verdict = bench.judge(points_of(row), Targets(**row.targets))
    row.passed = False if missing else verdict.passed
    row.ended_at = timezone.now()
    row.save(update_fields=["passed", "ended_at"])


def _row(attempt: Attempt) -> Benchmark:
    if attempt.job.kind != KIND:
        raise Untold("of another kind")
    job = attempt.job
    replica = Replica.objects.filter(pk=job.params.get("replica"), server=job.server_id).first()
    row, _new = Benchmark.objects.get_or_create(job=job, defaults=_fields(job, replica, job.requester))
    return row


def point_of(data: dict[str, Any]) -> Point:
    """Each field of its type, within its size. Raises Untold."""
    counts = {name: untrusted.whole(data.get(name), 10**7) for name in ("prompts", "completed", "failed")}
    degree = untrusted.whole(data.get("concurrency"), bench.MOST_DEGREE)
    if not degree or None in counts.values():
        raise Untold("no point")
    reason = data.get("reason")
    words = [untrusted.text(str(one), 500) for one in reason] if isinstance(reason, list) and len(reason) == 2 else None
    return Point(
        concurrency=degree,
        **{name: value or 0 for name, value in counts.items()},  # type: ignore[arg-type]
        **{name: untrusted.amount(data.get(name)) for name in RATES},  # type: ignore[arg-type]
        **{name: _percentiles(data.get(name)) for name in TIMES},  # type: ignore[arg-type]
        others=untrusted.whole(data.get("others"), 10**9),
        reason=(words[0], words[1]) if words else None,
    )


def _percentiles(value: Any) -> dict[str, float | None]:
    given = value if isinstance(value, dict) else {}
    return {name: untrusted.amount(given.get(name)) for name in bench.PERCENTILES}


# ---------- showing ----------


def points_of(row: Benchmark) -> list[Point]:
    names = {one.name for one in dataclasses.fields(Point)}
    return [Point(**{name: value for name, value in one.items() if name in names}) for one in row.points]


def verdict_of(row: Benchmark) -> Verdict:
    return bench.judge(points_of(row), Targets(**row.targets))


def is_running(row: Benchmark) -> bool:
    return row.job is not None and row.job.state not in ENDED and row.ended_at is None


def of_deployment(deployment: Deployment) -> QuerySet[Benchmark]:
    return deployment.benchmarks.select_related("revision", "replica__server", "job__server", "by")


def comparable(row: Benchmark) -> list[Benchmark]:
    """Runs that have points: of this deployment first, then the newest of others (before and after quantizing)."""
    rows = Benchmark.objects.exclude(pk=row.pk).exclude(points=[]).select_related("deployment", "revision")
    own = list(rows.filter(deployment=row.deployment)[:30])
    return [*own, *rows.exclude(deployment=row.deployment)[:20]]


def disturbed(row: Benchmark) -> list[Point]:
    """Degrees at which the engine had requests of others, too."""
    return [one for one in points_of(row) if one.others]


@dataclass(frozen=True)
class Change:
    """One number of two runs at the same degree; `better` is None where it is not known or did not move."""

    name: str
    before: float | None
    after: float | None
    pct: float | None
    better: bool | None


@dataclass(frozen=True)
class Pair:
    concurrency: int
    changes: tuple[Change, ...]


def compare(before: Benchmark, after: Benchmark) -> list[Pair]:
    """At each degree that both have: throughput, and TTFT and TPOT at p90."""
    old = {one.concurrency: one for one in points_of(before)}
    return [
        Pair(new.concurrency, tuple(_changes(old[new.concurrency], new)))
        for new in points_of(after)
        if new.concurrency in old
    ]


def _changes(old: Point, new: Point) -> list[Change]:
    found = [_change("output_tokens_s", old.output_tokens_s, new.output_tokens_s, more_is_better=True)]
    for name in ("ttft_ms", "tpot_ms", "e2el_ms"):
        found.append(_change(name, getattr(old, name).get("p90"), getattr(new, name).get("p90"), more_is_better=False))
    return found


def _change(name: str, before: float | None, after: float | None, *, more_is_better: bool) -> Change:
    pct = round(100 * (after - before) / before, 1) if before and after is not None else None
    return Change(name, before, after, pct, None if not pct else (pct > 0) == more_is_better)


def unlike(before: Benchmark, after: Benchmark) -> list[str]:
    """In what they were asked differently: such numbers say little beside one another."""
    names = ("input_len", "output_len", "way", "ignore_eos", "prompts", "through")
    every = {name: field.default for name, field in kind.Params.__dataclass_fields__.items()}
    return [name for name in names if before.asked.get(name, every.get(name)) != after.asked.get(name, every.get(name))]


def as_json(row: Benchmark) -> dict[str, Any]:
    verdict = verdict_of(row)
    job = row.job
    return {
        "id": row.pk,
        "deployment": row.deployment.name,
        "revision": row.revision.n if row.revision else None,
        "replica": row.replica.n if row.replica else None,
        "server": job.server.name if job else None,
        "simulated": job.server.simulated if job else False,
        "job": job.pk if job else None,
        "state": job.state if job else None,
        "asked": row.asked,
        "targets": row.targets,
        "points": row.points,
        "passed": row.passed,
        "verdict": pick(verdict.sentence) if row.ended_at else None,
        "faults": [pick(one) for one in verdict.faults] if row.ended_at else [],
        "under_load": [one.concurrency for one in disturbed(row)],
        "created_at": row.created_at.isoformat(),
        "ended_at": row.ended_at.isoformat() if row.ended_at else None,
    }
