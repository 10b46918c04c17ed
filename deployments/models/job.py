"""Jobs, their attempts, steps and logs. State is the fold of the events that a server sends."""

from datetime import datetime

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from deployments.models.batch import Batch
from deployments.models.fleet import Server
from deployments.models.stream import Stream, StreamChunk


class JobState(models.TextChoices):
    DRAFT = "draft", _("Draft")
    WAITING_APPROVAL = "waiting_approval", _("Waiting for approval")
    QUEUED = "queued", _("Queued")
    RUNNING = "running", _("Running")
    WAITING_REBOOT = "waiting_reboot", _("Waiting for reboot")
    SUCCEEDED = "succeeded", _("Succeeded")
    FAILED = "failed", _("Failed")
    CANCELLED = "cancelled", _("Cancelled")
    LOST = "lost", _("Lost")


ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
UNDER_WAY = (JobState.QUEUED, JobState.RUNNING, JobState.WAITING_REBOOT)


class Job(models.Model):
    """One procedure on one server. `reason` is [zh, en], why it ended as it did, or None."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="jobs")
    kind = models.CharField(max_length=40)
    params = models.JSONField(default=dict)
    state = models.CharField(max_length=20, choices=JobState.choices, default=JobState.QUEUED)
    locks = models.JSONField(default=list)
    waiting = models.BooleanField(default=False)  # queued, and not handed over: see services/waiting.py
    batch = models.ForeignKey(Batch, null=True, blank=True, on_delete=models.SET_NULL, related_name="jobs")
    wave = models.PositiveIntegerField(null=True, blank=True)  # of its batch; 0 is the canary
    requester = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="jobs")
    ticket = models.CharField(max_length=100, blank=True, default="")
    reason = models.JSONField(null=True, blank=True)
    mark = models.JSONField(null=True, blank=True)  # [zh, en], what casts doubt on it: see services/clones.py
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    not_after = models.DateTimeField()
    # While it waits for its server to start anew: {"since", "until": ISO times by our clock, "by_hand", "step"}
    reboot = models.JSONField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["state", "-id"], name="job_by_state"),
            models.Index(fields=["server", "-id"], name="job_by_server"),
            models.Index(fields=["kind", "-id"], name="job_by_kind"),
        ]

    def __str__(self) -> str:
        return f"#{self.pk} {self.kind}"

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    @property
    def reboot_until(self) -> datetime | None:
        """Until when it waits for its server to start anew; None when it does not."""
        return datetime.fromisoformat(self.reboot["until"]) if self.reboot else None


class Attempt(Stream):
    """One run of a job."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempts")
    n = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=20, choices=JobState.choices, default=JobState.QUEUED)
    protocol = models.PositiveSmallIntegerField(default=2)  # PROTOCOL of its payload, the same however often it is sent
    rung = models.CharField(max_length=12, blank=True, default="")  # how far a cancel has gone
    report = models.JSONField(default=list)  # `item` events in order, plus their line
    pushed_at = models.DateTimeField(null=True, blank=True)
    pushes = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["job", "n"]
        constraints = [models.UniqueConstraint(fields=["job", "n"], name="attempt_once_per_job")]


class Step(models.Model):
    """One titled part of an attempt; `first_line` is the line of its heading in the log."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="steps")
    n = models.PositiveSmallIntegerField()
    title_zh = models.CharField(max_length=200)
    title_en = models.CharField(max_length=200)
    argv = models.JSONField(default=list)
    state = models.CharField(max_length=20, default="running")
    exit_code = models.IntegerField(null=True, blank=True)
    first_line = models.PositiveBigIntegerField(default=1)
    last_line = models.PositiveBigIntegerField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["attempt", "n"]
        constraints = [models.UniqueConstraint(fields=["attempt", "n"], name="step_once_per_attempt")]


class LogChunk(StreamChunk):
    """Lines of an attempt."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="chunks")

    class Meta:
        ordering = ["attempt", "first"]
        constraints = [models.UniqueConstraint(fields=["attempt", "first"], name="chunk_once_per_line")]
