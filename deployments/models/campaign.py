"""Campaigns: a stack for many servers, ring after ring, once a second person has approved the plan."""

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from deployments.models.batch import Batch
from deployments.models.fleet import Server
from deployments.models.job import Job


class CampaignState(models.TextChoices):
    WAITING = "waiting_approval", _("Waiting for approval")
    APPROVED = "approved", _("Approved")
    REJECTED = "rejected", _("Rejected")
    WITHDRAWN = "withdrawn", _("Withdrawn")
    EXPIRED = "expired", _("Expired")


class Campaign(models.Model):
    """What was asked for, and who has approved it. Once approved it is its batch's state that counts.

    `params` are those of the job kind `install`. `order` is what services/campaign_plan.Order holds; `titles` are the
    rings' names, {ring: [zh, en]}. `digest` names the plans of all its servers in their rings: what is approved.
    `progress` is {ring: {"passed": ISO time, "forgiven": [server ids]}}.
    """

    stack = models.CharField(max_length=63)
    params = models.JSONField(default=dict)
    selection = models.JSONField(default=dict)
    order = models.JSONField(default=dict)
    titles = models.JSONField(default=dict)
    progress = models.JSONField(default=dict)
    digest = models.CharField(max_length=64)
    planned_at = models.DateTimeField(default=timezone.now)
    state = models.CharField(max_length=20, choices=CampaignState.choices, default=CampaignState.WAITING)
    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="campaigns"
    )
    why = models.CharField(max_length=500, blank=True, default="")
    ticket = models.CharField(max_length=100, blank=True, default="")
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)
    note = models.CharField(max_length=500, blank=True, default="")
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField(default=timezone.now)
    batch = models.OneToOneField(Batch, null=True, blank=True, on_delete=models.SET_NULL, related_name="campaign")

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["state", "expires_at"], name="campaign_by_state")]

    def __str__(self) -> str:
        return f"#{self.pk} {self.stack}"


class CampaignPlan(models.Model):
    """What one or several servers of a campaign do. `steps` are those that run: [{"title": [zh, en], "root",
    "reboot"}]; `warnings` are [zh, en] each."""

    campaign = models.ForeignKey(Campaign, on_delete=models.CASCADE, related_name="plans")
    digest = models.CharField(max_length=64)  # services/installs.digest: of the exact steps
    steps = models.JSONField(default=list)
    warnings = models.JSONField(default=list)
    addresses = models.JSONField(default=list)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["campaign", "digest"], name="plan_once_per_campaign")]

    @property
    def word(self) -> str:
        """satisfied | runs | reboots"""
        if any(step["reboot"] for step in self.steps):
            return "reboots"
        return "runs" if self.steps else "satisfied"


class CampaignServer(models.Model):
    """One server of a campaign. `ring` is None where it cannot be brought there: `because` says why, [zh, en].

    `before` and `after` are versions as services/campaign_plan.versions reads them, {} where not looked at yet.
    `begun_at` and `settled_at` are its job's by our clock: what a job says itself is by its server's.
    `approved` is the digest of the plan that somebody approved for it. `held` is [zh, en] while it is held back at its
    turn, as its plan was no longer that one; then `plan` is the new one, or None where there is no way any more.
    """

    campaign = models.ForeignKey(Campaign, on_delete=models.CASCADE, related_name="members")
    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="+")
    ring = models.PositiveSmallIntegerField(null=True, blank=True)
    wave = models.PositiveIntegerField(null=True, blank=True)
    plan = models.ForeignKey(CampaignPlan, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    approved = models.CharField(max_length=64, blank=True, default="")
    because = models.JSONField(default=list, blank=True)
    before = models.JSONField(default=dict, blank=True)
    after = models.JSONField(default=dict, blank=True)
    begun_at = models.DateTimeField(null=True, blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)
    held = models.JSONField(default=list, blank=True)
    job = models.OneToOneField(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="campaign_member")

    class Meta:
        ordering = ["ring", "wave", "server__name"]
        constraints = [models.UniqueConstraint(fields=["campaign", "server"], name="server_once_per_campaign")]
