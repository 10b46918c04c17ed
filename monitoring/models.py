"""What is observed, kept over time."""

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from deployments.models import Attempt, EngineLog, Server


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
    """What is known of a failed run by its log: of an attempt at a job, or of one piece of an engine's log.

    `findings`: the shape of diagnoses.Finding.as_json, best first. `found`: id of the best rule, '' where nobody knows
    what is wrong. `right`: what people said of it. `server`, `kind`, `stack` and `model` are as they were then, ''
    where that is not known: lists of many ask no other table.
    """

    attempt = models.OneToOneField(Attempt, null=True, on_delete=models.CASCADE, related_name="diagnosis")
    piece = models.OneToOneField(EngineLog, null=True, on_delete=models.CASCADE, related_name="diagnosis")
    found = models.CharField(max_length=80, blank=True, default="")
    findings = models.JSONField(default=list)
    server = models.CharField(max_length=63, blank=True, default="")
    kind = models.CharField(max_length=40, blank=True, default="")  # of the job; "engine" for a piece
    stack = models.CharField(max_length=120, blank=True, default="")
    model = models.CharField(max_length=200, blank=True, default="")
    made_at = models.DateTimeField(default=timezone.now)
    day = models.DateField(null=True)  # of made_at on the console's clock
    right = models.BooleanField(null=True, blank=True)
    said_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    note = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["found", "made_at"], name="diagnosis_by_rule"),
            # All that the page of many counts by, so that it reads no findings.
            models.Index(
                fields=["day", "found", "server", "stack", "model", "right", "made_at"], name="diagnosis_by_day"
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(attempt=None, piece__isnull=False) | models.Q(attempt__isnull=False, piece=None),
                name="diagnosis_of_one",
            )
        ]

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.day = self.day or timezone.localdate(self.made_at)
        super().save(*args, **kwargs)
