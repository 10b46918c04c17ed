"""Benchmarks of deployments: one run over several degrees of concurrency."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from deployments.models.deployment import Deployment, Replica, Revision
from deployments.models.job import Job


class Benchmark(models.Model):
    """`asked`: parameters of the kind `benchmark`; `targets`: {"ttft_ms", "tpot_ms", "concurrency", …} as asked for.

    `points`: one for each degree of concurrency, the shape of serving/bench.py. `passed` is None without targets, or
    until it has ended.
    """

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="benchmarks")
    revision = models.ForeignKey(Revision, null=True, on_delete=models.SET_NULL, related_name="benchmarks")
    replica = models.ForeignKey(Replica, null=True, on_delete=models.SET_NULL, related_name="benchmarks")
    job = models.OneToOneField(Job, null=True, on_delete=models.SET_NULL, related_name="benchmark")
    asked = models.JSONField(default=dict)
    targets = models.JSONField(default=dict)
    points = models.JSONField(default=list)
    passed = models.BooleanField(null=True, blank=True)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
