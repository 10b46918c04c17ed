"""Batches: the same job on several servers, a few at a time."""

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class BatchState(models.TextChoices):
    RUNNING = "running", _("Running")
    PAUSED = "paused", _("Paused")
    STOPPED = "stopped", _("Stopped")
    SUCCEEDED = "succeeded", _("Succeeded")
    FAILED = "failed", _("Failed")


class Batch(models.Model):
    """One procedure on many servers. Its jobs are drafts until their wave begins.

    `selection` is what was asked for and whom it hit at that time: {"asked": {…}, "servers": [name, …]}.
    `reason` is [zh, en], why it stands still or ended as it did, or None.
    """

    kind = models.CharField(max_length=40)
    params = models.JSONField(default=dict)
    selection = models.JSONField(default=dict)
    canary = models.PositiveIntegerField(default=1)  # servers that go first, alone; 0: none
    wave_size = models.PositiveIntegerField(default=10)
    stop_after = models.PositiveIntegerField(default=1)  # failures
    spread = models.BooleanField(default=True)  # never two servers of one rack in a wave
    state = models.CharField(max_length=20, choices=BatchState.choices, default=BatchState.RUNNING)
    reason = models.JSONField(null=True, blank=True)
    forgiven = models.PositiveIntegerField(default=0)  # failures that somebody saw and let the batch go on after
    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="batches"
    )
    ticket = models.CharField(max_length=100, blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["state", "-id"], name="batch_by_state")]

    def __str__(self) -> str:
        return f"#{self.pk} {self.kind}"
