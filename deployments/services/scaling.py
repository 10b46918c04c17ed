"""How many replicas: by hand, until the next point of the schedule."""

from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from console.errors import Conflict
from console.language import pick
from console.models import User
from deployments.models import GONE, Deployment, Replica, ReplicaState
from deployments.services import deployments, placement, revisions, rollout
from deployments.serving import settings as serving_settings


def scale(deployment: Deployment, replicas: int, *, by: User) -> Deployment:
    """Wish so many replicas. Those too many are drained first; those that had failed may be tried again."""
    deployments.check_replicas(replicas)
    with deployments.changing(deployment, by, "deployment.scaled", replicas=replicas) as row:
        if row.replicas == replicas and not row.stopped:
            raise Conflict(
                _("“%(name)s” is to have %(n)s replicas already.") % {"name": row.name, "n": replicas},
                _("Choose another number."),
                code="unchanged",
            )
        row.details["before"] = row.replicas  # type: ignore[attr-defined]
        row.replicas, row.schedule_at, row.tried_at, row.reason = replicas, timezone.now(), timezone.now(), None
    return row


def plan(deployment: Deployment, replicas: int) -> dict[str, Any]:
    """{"starts": [{server, npus}] as there is room now, "lacking": how many find none, "stops": [{n, server, npus,
    state}], "why_not": the nearest refusal or None}. It changes nothing."""
    deployments.check_replicas(replicas)
    there = deployment.replica_set.exclude(state__in=(*GONE, ReplicaState.DRAINING)).select_related("server")
    rows = list(there.order_by("n"))
    more = replicas - len(rows)
    if more <= 0:
        return {
            "starts": [],
            "lacking": 0,
            "stops": [revisions.which(row) for row in worst(rows, -more)],
            "why_not": None,
        }
    revision = deployment.revision
    if revision is None or revision.artifact is None:
        return {"starts": [], "lacking": more, "stops": [], "why_not": None}
    settings = serving_settings.read(revision.settings)
    where: dict[str, Any] = {
        "servers": deployment.servers or None,
        "spread": deployment.spread,
        "deployment": deployment,
    }
    found = placement.choose(settings, revision.artifact, count=more, **where)
    starts = [{"server": one.server, "npus": list(one.npus)} for one in found]
    refused = [] if len(starts) == more else placement.look(settings, revision.artifact, **where)
    why_not = next((f"{one.server}: {pick(one.why_not[0])}" for one in refused if one.why_not), None)
    return {"starts": starts, "lacking": more - len(starts), "stops": [], "why_not": why_not}


def worst(rows: list[Replica], count: int) -> list[Replica]:
    """As many, in the order in which they would be drained."""
    left = list(rows)
    taken: list[Replica] = []
    while left and len(taken) < count:
        taken.append(rollout.worst(left))
        left.remove(taken[-1])
    return taken
