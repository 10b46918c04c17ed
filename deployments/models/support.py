"""Support bundles: what was collected for a vendor, from which server, and what could not be had."""

import secrets

from django.conf import settings
from django.db import models
from django.utils import timezone

from deployments.models.deployment import Deployment
from deployments.models.fleet import Server
from deployments.models.job import Job


def new_salt() -> str:
    return secrets.token_hex(16)


class SupportBundle(models.Model):
    """`about` is what it was asked for: {"title": [zh, en], "link": path}. `hosts`: names and addresses stand in it.

    `seen_at` is when something happened; what was written around it was collected, from `since` on.
    """

    about = models.JSONField(default=dict)
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="support_bundles")
    deployment = models.ForeignKey(
        Deployment, null=True, blank=True, on_delete=models.SET_NULL, related_name="support_bundles"
    )
    case_number = models.CharField(max_length=60, blank=True, default="", db_index=True)
    note = models.TextField(blank=True, default="")
    hosts = models.BooleanField(default=False)
    salt = models.CharField(max_length=64, default=new_salt)
    since = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(default=timezone.now)
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"support bundle #{self.pk}"


class PartState(models.TextChoices):
    WAITING = "waiting", "waiting"
    ARRIVED = "arrived", "arrived"
    MISSING = "missing", "missing"


class SupportPart(models.Model):
    """One source of one server; without a server it is what the console itself had. Its zip lies below VAR_DIR.

    `entries`: [{"name", "size", "sha256", "cut", "binary", "masked"}]; `missing`: [{"what", "why": [zh, en]}]; `why` is
    [zh, en], why there is none of it at all.
    """

    bundle = models.ForeignKey(SupportBundle, on_delete=models.CASCADE, related_name="parts")
    server = models.ForeignKey(Server, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    server_name = models.CharField(max_length=63, blank=True, default="")  # it stays when the server goes
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="support_parts")
    source = models.CharField(max_length=20)
    state = models.CharField(max_length=10, choices=PartState.choices, default=PartState.WAITING)
    bytes = models.PositiveBigIntegerField(default=0)  # of its zip
    here = models.PositiveBigIntegerField(default=0)  # of these, while they come
    entries = models.JSONField(default=list)
    missing = models.JSONField(default=list)
    why = models.JSONField(null=True, blank=True)
    arrived_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["bundle", "server_name", "id"]
        constraints = [models.UniqueConstraint(fields=["bundle", "server_name", "source"], name="support_part_once")]
