"""Rows of jobs that ended long ago go where nothing refers to them; only its own parts do not keep a job."""

from datetime import timedelta

from django.conf import settings
from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from deployments.models import Approval, Attempt, Batch, BatchState, Decision, Job
from deployments.models.job import ENDED
from deployments.services import log_keeping

BATCH = 50
# What goes with a job; every other relation keeps it, so that a new one needs no word here.
PARTS = {"deployments.Attempt", "deployments.Approval", "deployments.Step", "deployments.LogChunk",
         "monitoring.Diagnosis"}  # fmt: skip
OPEN_BATCHES = (BatchState.RUNNING, BatchState.PAUSED)


def prune() -> int:
    """How many jobs went. Their lines go first, a few at a time."""
    pruned = 0
    while keys := list(old_jobs().order_by("pk").values_list("pk", flat=True)[:BATCH]):
        for attempt in Attempt.objects.filter(job__in=keys):
            log_keeping.empty(attempt)
        gone = old_jobs().filter(pk__in=keys).delete()[1].get("deployments.Job", 0)
        if not gone:
            break
        pruned += gone
    return pruned


def old_jobs() -> QuerySet[Job]:
    """Of each kind on each server the newest in each state stays: pages show what was last found or done."""
    limit = timezone.now() - timedelta(days=settings.JOB_DAYS)
    newest = Job.objects.order_by().values("server", "kind", "state").annotate(last=Max("pk")).values("last")
    old = Job.objects.filter(state__in=ENDED, created_at__lt=limit).exclude(pk__in=newest)
    return old.filter(Q(ended_at=None) | Q(ended_at__lt=limit)).exclude(_held())


def _held() -> Q:
    held = Q(pk__in=Approval.objects.filter(decision=Decision.WAITING).values("job"))
    held |= Q(batch__in=Batch.objects.filter(Q(state__in=OPEN_BATCHES) | Q(campaign__isnull=False)))
    for model, path in ((Job, "pk"), (Attempt, "attempts__pk")):
        for relation in model._meta.related_objects:
            other = relation.related_model
            if other._meta.label in PARTS:
                continue
            name = relation.field.attname
            keys = other._base_manager.filter(**{f"{relation.field.name}__isnull": False}).values(name)
            held |= Q(pk__in=keys) if path == "pk" else Q(pk__in=Attempt.objects.filter(pk__in=keys).values("job"))
    return held
