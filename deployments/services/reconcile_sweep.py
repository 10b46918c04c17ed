"""Which deployments reconcile is to look at: those that are not settled, every few seconds; all of them by cron."""

import redis
from django.db.models import Count, Exists, F, OuterRef, Q
from django.utils import timezone

from console import streams
from console.redis import client
from deployments.models import GONE, SERVING, Deployment, PortLease, Replica, Reservation
from deployments.services import picture, schedules
from deployments.services.reconcile_asking import enqueue


def unsettled() -> list[int]:
    """Ids of deployments that may have something to do. A fixed number of queries, and no lock."""
    steady = Q(replica_set__state__in=SERVING, replica_set__revision=F("revision"))
    counted = Deployment.objects.filter(paused=False).annotate(
        steady=Count("replica_set", filter=steady),
        there=Count("replica_set", filter=~Q(replica_set__state__in=GONE)),
    )
    wanted = Q(stopped=True) | ~Q(deleted_at=None)
    moving = Q(rollout__isnull=False)  # None would ask for a JSON null
    odd = moving | ~Q(steady=F("there")) | (wanted & ~Q(there=0)) | (~wanted & ~Q(there=F("replicas")))
    found = set(counted.filter(odd).order_by().values_list("pk", flat=True))
    gone = Replica.objects.filter(state__in=GONE).filter(
        Exists(Reservation.objects.filter(replica=OuterRef("pk")))
        | Exists(PortLease.objects.filter(replica=OuterRef("pk")))
    )
    found |= set(gone.order_by().values_list("deployment_id", flat=True))
    silent = Replica.objects.there().filter(server__last_seen_at__lt=timezone.now() - picture.LOST_AFTER)
    found |= set(silent.filter(deployment__replace_lost=True).order_by().values_list("deployment_id", flat=True))
    scheduled = Deployment.objects.present().filter(paused=False).exclude(schedule=[])
    now = timezone.now()
    found |= {row.pk for row in scheduled.only("schedule", "schedule_at") if schedules.due(row, now)}
    return sorted(found)


def sweep() -> int:
    """Have those looked at that are not settled; how many were asked for. Ingest calls it every few seconds."""
    ids = unsettled()
    if not ids:
        return 0
    try:
        left_alone = client().mget([streams.reconcile_later(pk) for pk in ids])
    except redis.RedisError:
        return 0
    return sum(enqueue(pk) for pk, later in zip(ids, left_alone, strict=True) if not later)


def look_at_all() -> int:
    """What cron does: whoever was not asked for is looked at all the same."""
    ids = Deployment.objects.filter(Q(deleted_at=None) | Q(pk__in=unsettled())).order_by("pk")
    return sum(enqueue(pk) for pk in ids.values_list("pk", flat=True))
