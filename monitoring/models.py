"""What is observed, kept over time."""

from django.db import models

from deployments.models import Server


class Minute(models.Model):
    """One packed row per server and minute: `data` holds a list per NPU, see monitoring/history.py."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="minutes")
    at = models.DateTimeField()
    data = models.JSONField()

    class Meta:
        ordering = ["server", "at"]
        constraints = [models.UniqueConstraint(fields=["server", "at"], name="minute_once_per_server")]
        indexes = [models.Index(fields=["at"], name="minute_by_time")]
