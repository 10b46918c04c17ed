"""What a second person has to decide about a job before its server gets it."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from deployments.models.job import Job


class Decision(models.TextChoices):
    WAITING = "waiting", _("Waiting for approval")
    APPROVED = "approved", _("Approved")
    REJECTED = "rejected", _("Rejected")
    EXPIRED = "expired", _("Expired")
    WITHDRAWN = "withdrawn", _("Withdrawn")  # the job ended otherwise: cancelled, or its server is gone


class Approval(models.Model):
    """One time that a job was asked for; `requester` is who asked this time, which a retry makes another than the
    job's own."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="approvals")
    requester = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    asked_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    decision = models.CharField(max_length=12, choices=Decision.choices, default=Decision.WAITING)
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)
    note = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        ordering = ["job", "id"]
        indexes = [models.Index(fields=["decision", "expires_at"], name="approval_by_decision")]
        constraints = [
            models.UniqueConstraint(fields=["job"], condition=Q(decision="waiting"), name="approval_open_once_per_job")
        ]

    def __str__(self) -> str:
        return f"#{self.job_id} {self.decision}"
