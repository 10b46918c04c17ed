"""Jobs that start, stop and restart the engine of a replica, filled in from its row and from nothing else.

A replica over several servers has a job on each: those of the other nodes are queued first, all of them or none. They
are tied: where one ends badly the others are cancelled, and what has started is stopped.
"""

import base64
import json
import logging
from collections.abc import Callable
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from console import untrusted
from console.errors import Conflict, ConsoleError, Invalid, NotFound
from console.language import pick
from console.models import User
from deployments.agent import signing
from deployments.models import Attempt, Job, JobState, Replica, Server
from deployments.models.deployment import GONE
from deployments.models.job import ENDED
from deployments.services import filling, jobs, reserved, serve_nodes, stacks, told
from deployments.services.serve_nodes import Node
from deployments.serving import faults
from deployments.serving import nodes as serving_nodes
from deployments.serving import settings as serving_settings
from deployments.serving.fields import Settings
from deployments.steps import BadParams

log = logging.getLogger(__name__)
SERVE, STOP, RESTART = "serve", "stop", "restart"
STARTS = (SERVE, RESTART)
ABORTED = (JobState.FAILED, JobState.CANCELLED)
ASKED_OLD = "old"
MOST_CUT = 1_000_000

Ended = Callable[[Job, Attempt], None]
ENDED_HOOKS: list[Ended] = []


# ---------- start, stop, restart ----------


def start(replica: Replica, *, by: User, fault: str = "") -> Job:
    """Queue the job that starts it; with several nodes one each, of which the first node's comes back.

    Raises ConsoleError; then no job is queued.
    """
    fault = fault or _labelled(replica)
    return _queue(replica, SERVE, {"fault": fault} if fault else {}, by=by)[0]


def restart(replica: Replica, *, by: User) -> Job:
    """The same for one that runs: it is stopped first."""
    return _queue(replica, RESTART, {}, by=by)[0]


def stop(replica: Replica, *, by: User, now: bool = False) -> Job | None:
    """Queue the job that stops it; without `now` it first waits until no request is under way, for as long as the
    deployment lets them. A start that is under way is cancelled, and the stop comes behind it. Nothing can be stopped
    on a server that was decommissioned: None where none is left. Raises ConsoleError."""
    with transaction.atomic():
        begun = of(replica).filter(kind__in=STARTS, cancel_requested_at=None).exclude(state__in=ENDED)
        for job in begun.order_by("pk"):
            jobs.cancel_job(job, by=by)
        made = _queue(replica, STOP, {"now": now}, by=by)
        return made[min(made)] if made else None


def _queue(replica: Replica, kind: str, params: dict[str, Any], *, by: User) -> dict[int, Job]:
    """{rank: job}. The other nodes first, for the first one waits for them; stopping goes the other way round."""
    parts = parts_of(replica)
    several = len(parts) > 1
    with transaction.atomic():
        made = {}
        for part in parts if kind == STOP else reversed(parts):
            server = replica.server if part.server_id == replica.server_id else Server.objects.get(pk=part.server_id)
            if kind == STOP and server.is_gone:
                continue
            # A node that waited for hours would keep the others waiting, too.
            wait = kind == STOP or not several
            made[part.rank] = jobs.queue_job(server, kind, {"replica": replica.pk, **params}, by=by, wait=wait)
    return made


def parts_of(replica: Replica) -> list[Node]:
    """Its nodes by rank; one where the row names none."""
    if not replica.nodes:
        return [Node(replica.server_id, 0, list(replica.npus), "")]
    return [
        Node(int(one["server"]), int(one.get("rank", n)), list(one.get("npus") or []), str(one.get("address") or ""))
        for n, one in enumerate(replica.nodes)
    ]


# ---------- what the console fills in ----------


def find(params: dict[str, Any]) -> Replica:
    """The replica that a job is for. Raises Invalid, NotFound."""
    pk = params.get("replica")
    if type(pk) is not int:
        raise Invalid(_("No replica was named."), _("Start it from the page of its deployment."), code="no_replica")
    found = Replica.objects.select_related("deployment", "revision", "server").filter(pk=pk).first()
    if found is None:
        raise NotFound(
            _("There is no replica with number %(id)s.") % {"id": pk},
            _("Start it from the page of its deployment."),
            code="unknown_replica",
        )
    return found


def part_on(replica: Replica, server: Server) -> Node:
    """Raises Invalid where the replica is not on that server."""
    for part in parts_of(replica):
        if part.server_id == server.pk:
            return part
    raise Invalid(
        _("Replica %(n)s of %(name)s is not on %(server)s.")
        % {"n": replica.n, "name": replica.deployment.name, "server": server.name},
        _("Start it from the page of its deployment."),
        code="not_there",
    )


def fill_start(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """Raises ConsoleError."""
    replica = find(params)
    part = part_on(replica, server)
    _check_simulated(server, params)
    if replica.state in GONE:
        raise Conflict(
            _("Replica %(n)s of %(name)s has ended.") % {"n": replica.n, "name": replica.deployment.name},
            _("The deployment starts another one in its place; see its page."),
            code="replica_ended",
        )
    wanted = settings_of(replica)
    _check_nodes(replica, wanted)
    if not replica.port or not replica.path:
        raise Conflict(
            _("Replica %(n)s of %(name)s has no port or no model yet.")
            % {"n": replica.n, "name": replica.deployment.name},
            _("Wait until it was placed, then start it again."),
            code="not_placed",
        )
    route, why = route_of(server, wanted)
    return {
        "deployment": replica.deployment.name,
        "revision": replica.revision.n,
        "model": replica.path,
        "fingerprint": replica.revision.fingerprint,
        "npus": part.npus,
        "device": wanted.device,
        "address": part.address or replica.address,
        "port": replica.port,
        "settings": json.dumps(_settings(replica, server), ensure_ascii=False, sort_keys=True),
        "sealed": sealed(server, replica.deployment.api_key),
        "stacks": stacks.row_of(server).has.root,
        "route": route,
        "why": why,
        "family": server.family[:40],
        "rank": part.rank,
        "addresses": [one.address for one in parts_of(replica)] if replica.nodes else [],
        "ports": _ports(replica, server),
        **serve_nodes.between(server, parts_of(replica)),
    }


def settings_of(replica: Replica) -> Settings:
    """Of its revision. Raises Invalid where they are no longer valid."""
    try:
        return serving_settings.read(replica.revision.settings)
    except BadParams as error:
        what = "; ".join(f"{name}: {pick(text)}" for name, text in error.problems[:8])
        raise Invalid(
            _("The settings do not fit: %(problems)s.") % {"problems": what},
            _("Make a new revision of the deployment."),
            code="invalid_settings",
        ) from error


def _settings(replica: Replica, server: Server) -> dict[str, Any]:
    """With the data type that the chip has, where the choice is left to the engine."""
    made = {**replica.revision.settings}
    if made.get("device", "npu") == "npu" and made.get("dtype", "auto") == "auto" and server.family.startswith("310P"):
        made["dtype"] = "float16"  # such chips have no bfloat16, which most models name
    return made


def _labelled(replica: Replica) -> str:
    """The fault that the label `fault` of a simulated deployment has its starts act out; '' for none."""
    deployment = replica.deployment
    named = str(deployment.labels.get("fault", "")) if deployment.simulated else ""
    return named if named in faults.OF_START else ""


def _check_simulated(server: Server, params: dict[str, Any]) -> None:
    """Raises Invalid for a fault that is to be simulated where nothing is."""
    if params.get("fault") and not server.simulated:
        raise Invalid(
            _("%(server)s is no simulated server, so no fault is simulated there.") % {"server": server.name},
            _("Leave the fault out, or choose a simulated server."),
            code="not_simulated",
        )


def _check_nodes(replica: Replica, wanted: Settings) -> None:
    if wanted.nodes < 2 and not replica.nodes:
        return
    problems = [] if replica.server.simulated else serving_nodes.problems(replica.nodes, wanted)
    if problems:
        raise Conflict(" ".join(pick(text) for text in problems), _("Place the replica anew."), code="nodes_do_not_fit")


def sealed(server: Server, api_key: str) -> str:
    """For the agent of this server alone to open."""
    data = json.dumps({"api_key": api_key}).encode()
    return base64.b64encode(signing.seal(server.key, data)).decode()


def route_of(server: Server, wanted: Settings) -> tuple[str, str]:
    """How the engine is kept there, and why not by systemd where that was wished or would be better."""
    if wanted.route in ("podman", "docker", "process"):
        return wanted.route, ""
    root = server.facts.get("root")
    if server.simulated or (root == "helper" and server.facts.get("systemd") is True):
        return "systemd", ""
    if root == ASKED_OLD:
        return "process", "old_helper"
    return "process", "no_systemd" if server.facts.get("systemd") is not True else "no_root"


def _ports(replica: Replica, server: Server) -> list[str]:
    """`dp:13400`, … as leased: those of the first node, where the others meet it, and each one's own for HCCL."""
    rows = replica.ports.exclude(purpose="http").order_by("purpose")
    met = {row.purpose: row.port for row in rows if row.server_id == replica.server_id and row.purpose != "hccl"}
    own = {row.purpose: row.port for row in rows if row.server_id == server.pk and row.purpose == "hccl"}
    return [f"{name}:{port}" for name, port in (met | own).items()]


def fill_stop(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """Raises ConsoleError."""
    replica = find(params)
    part = part_on(replica, server)
    _check_simulated(server, params)
    return {
        "deployment": replica.deployment.name,
        "npus": part.npus,
        "held": _may_hold(server, replica, part.npus),
        "device": str(replica.revision.settings.get("device", "npu")),
        "address": part.address or replica.address,
        "port": replica.port,
        "route": ran_by(replica, server),
        "family": server.family[:40],
        "drain_s": replica.deployment.drain_s,
    }


def _may_hold(server: Server, replica: Replica, names: list[str]) -> list[str]:
    """Those that are neither cordoned nor, since this replica is gone, promised to somebody else: its end must wait
    for none of them."""
    kept, mine = reserved.of(server), f"engine:{replica.pk}"
    free = [name for name in names if name.partition("/")[0].upper() not in server.cordons]
    return [name for name in free if reserved.in_the_way(kept, [mine, f"{reserved.NPU_LOCK}{name}"]) is None]


def ran_by(replica: Replica, server: Server) -> str:
    """The route that its last start there took: what the server can do may have changed since."""
    last = of(replica).filter(server=server, kind__in=STARTS).order_by("-pk").first()
    if last is not None and last.params.get("route"):
        return str(last.params["route"])
    return route_of(server, settings_of(replica))[0]


def seal_again(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """Of a job that goes again: the server's key may be another by now. Raises ConsoleError."""
    return fill_start(server, {"replica": params.get("replica")})


def of(replica: Replica) -> Any:
    """Every job that was queued for it."""
    return Job.objects.filter(kind__in=(SERVE, STOP, RESTART), params__replica=replica.pk)


# ---------- what follows from their ends ----------


def on_end(act: Ended) -> Ended:
    """`act(job, attempt)` is called within ingest's transaction when a job of these kinds has ended, before the job's
    row is saved."""
    ENDED_HOOKS.append(act)
    return act


def ended(job: Job, attempt: Attempt) -> None:
    """A job of any kind has ended; nothing for those of other kinds. Within a transaction of the caller."""
    if job.kind not in (SERVE, STOP, RESTART):
        return
    if job.kind in STARTS and job.state in ABORTED:
        _tie(job)
    for act in ENDED_HOOKS:
        act(job, attempt)


@told.handles("engine_stopped")
def stopped_told(attempt: Attempt, data: dict[str, Any]) -> None:
    """How many requests the end of an engine has cut off, of all its nodes the one that answers."""
    job, cut = attempt.job, untrusted.whole(data.get("cut"), MOST_CUT)
    if job.kind in (STOP, RESTART) and cut is not None:
        Replica.objects.filter(pk=job.params.get("replica") or 0, server=job.server_id).update(cut=cut)


def _tie(job: Job) -> None:
    """One node of several did not start: the others are not to run without it, and say why they ended."""
    replica = Replica.objects.filter(pk=job.params.get("replica") or 0).select_related("deployment").first()
    if replica is None or not replica.nodes:
        return
    others = [one for one in siblings(replica, job) if one.pk != job.pk]
    failed = next((one for one in others if one.state == JobState.FAILED and one.reason), None)
    if failed is not None and job.state == JobState.CANCELLED:
        zh, en = failed.reason or ["", ""]
        job.reason = [f"节点 {failed.server.name}：{zh}", f"Node {failed.server.name}: {en}"]
        return  # the one that failed has ended the rest
    transaction.on_commit(lambda: end_others(job.pk, [one.pk for one in others]))


def siblings(replica: Replica, job: Job) -> list[Job]:
    """The newest start on each server of the replica; one that was queued long before belongs to another time."""
    newest: dict[int, Job] = {}
    for one in of(replica).filter(kind=job.kind).select_related("server", "requester").order_by("pk"):
        newest[one.server_id] = one
    return list(newest.values())


def end_others(failed: int, others: list[int]) -> None:
    """Cancel what is under way of them, stop what has started; who cannot is left to the reconciler."""
    job = Job.objects.select_related("requester").get(pk=failed)
    by = job.requester
    for one in Job.objects.filter(pk__in=others).select_related("server"):
        try:
            if by is None:
                log.warning("nobody is left in whose name job #%s could be ended", one.pk)
            elif one.state not in ENDED:
                jobs.cancel_job(one, by=by)
            elif one.state == JobState.SUCCEEDED:
                params = {"replica": one.params["replica"], "now": True}
                jobs.queue_job(one.server, STOP, params, by=by)
        except ConsoleError as error:
            log.warning("job #%s, tied to #%s, was not ended: %s", one.pk, failed, error)


filling.FILLERS |= {SERVE: fill_start, RESTART: fill_start, STOP: fill_stop}
filling.AGAIN |= {SERVE: seal_again, RESTART: seal_again}
