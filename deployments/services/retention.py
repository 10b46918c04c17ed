"""What of deployments goes when it is old, in batches: replicas that have ended, benchmarks of deployments that were
deleted, usage of keys that nobody can ask for any more."""

from datetime import timedelta

from django.conf import settings
from django.db.models import F, Max, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from deployments.models import GONE, Benchmark, KeyUsage, PortLease, Replica, Reservation
from deployments.services import usage

BATCH = 500


def prune() -> int:
    """How many rows went."""
    long_ago = timezone.now() - timedelta(days=settings.REPLICA_DAYS)
    replicas = old_replicas().filter(ended_at__lt=long_ago)
    benchmarks = Benchmark.objects.filter(deployment__deleted_at__lt=long_ago, created_at__lt=long_ago)
    days = KeyUsage.objects.filter(day__lt=usage.since(usage.MOST_DAYS))
    return _delete(replicas) + _delete(benchmarks) + _delete(days)


def old_replicas() -> QuerySet[Replica]:
    """Those that are gone and hold nothing; of each deployment the newest stays, for numbers are never given again."""
    newest = Replica.objects.filter(deployment=OuterRef("deployment")).order_by().values("deployment")
    last = Subquery(newest.annotate(last=Max("n")).values("last"))
    held = Q(pk__in=Reservation.objects.exclude(replica=None).values("replica"))
    held |= Q(pk__in=PortLease.objects.exclude(replica=None).values("replica"))
    return Replica.objects.filter(state__in=GONE).exclude(held).annotate(last=last).filter(n__lt=F("last"))


def _delete(rows: QuerySet[Replica] | QuerySet[Benchmark] | QuerySet[KeyUsage]) -> int:
    pruned = 0
    while keys := list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH]):
        rows.model._default_manager.filter(pk__in=keys).delete()
        pruned += len(keys)
    return pruned
