"""What is observed, kept over time."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from deployments.models import Attempt, Server


class Minute(models.Model):
    """One packed row per server and minute: `data` holds a list per NPU, see monitoring/history.py."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="minutes")
    at = models.DateTimeField()
    data = models.JSONField()

    class Meta:
        ordering = ["server", "at"]
        constraints = [models.UniqueConstraint(fields=["server", "at"], name="minute_once_per_server")]
        indexes = [models.Index(fields=["at"], name="minute_by_time")]


class Rollup(models.Model):
    """The same for `step_s` seconds from `at` on: 300, or 3600 (monitoring/services/rollups.py makes them)."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="rollups")
    step_s = models.PositiveSmallIntegerField()
    at = models.DateTimeField()
    data = models.JSONField()

    class Meta:
        ordering = ["server", "step_s", "at"]
        constraints = [models.UniqueConstraint(fields=["server", "step_s", "at"], name="rollup_once_per_server")]
        indexes = [models.Index(fields=["step_s", "at"], name="rollup_by_time")]


class Diagnosis(models.Model):
    """What is known of a failed run by its log.

    `findings`: the shape of diagnoses.Finding.as_json, best first. `found`: id of the best rule, '' where nobody knows
    what is wrong. `right`: what people said of it.
    """

    attempt = models.OneToOneField(Attempt, on_delete=models.CASCADE, related_name="diagnosis")
    found = models.CharField(max_length=80, blank=True, default="")
    findings = models.JSONField(default=list)
    made_at = models.DateTimeField(default=timezone.now)
    right = models.BooleanField(null=True, blank=True)
    said_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    note = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["found", "made_at"], name="diagnosis_by_rule")]
