"""Gateways: one address for a deployment, its keys, and what each key has used."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from deployments.models.deployment import Deployment
from deployments.models.fleet import Server
from deployments.models.job import Job


class Gateway(models.Model):
    """nginx with keys before a vllm-router, both on `server` and units of their own; one for each deployment.

    `state`: planned | starting | ready | degraded | stopped | failed. `wished` counts changes of what it should be,
    `applied` is the last that its server confirmed. `open_without_keys`: nginx is missing, the router alone answers.
    `engines`: [{"address", "port", "replica" or "external"}] as last applied. `told`: what its keeper says of it.
    """

    deployment = models.OneToOneField(Deployment, on_delete=models.CASCADE, related_name="gateway")
    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="gateways")
    address = models.CharField(max_length=255, default="127.0.0.1")
    port = models.PositiveIntegerField(default=0)
    router_port = models.PositiveIntegerField(default=0)
    policy = models.CharField(max_length=30, default="cache_aware")
    open_without_keys = models.BooleanField(default=False)
    enabled = models.BooleanField(default=True)
    state = models.CharField(max_length=10, default="planned")
    reason = models.JSONField(null=True, blank=True)
    wished = models.PositiveIntegerField(default=1)
    applied = models.PositiveIntegerField(default=0)
    engines = models.JSONField(default=list, blank=True)
    told = models.JSONField(default=dict, blank=True)
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    heard_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["deployment"]


class GatewayKey(models.Model):
    """An API key of gateways; only its digest is kept. No row in `deployments` means all of them."""

    name = models.CharField(max_length=100)
    start = models.CharField(max_length=12)  # first characters, to know it by
    digest = models.CharField(max_length=64, unique=True)  # SHA-256, hex
    deployments = models.ManyToManyField(Deployment, related_name="keys", blank=True)
    rate_per_min = models.PositiveIntegerField(null=True, blank=True)
    owner = models.CharField(max_length=100, blank=True, default="")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]


class KeyUsage(models.Model):
    """What one key used on one gateway's deployment on one day, by the engine's own count of tokens."""

    key = models.ForeignKey(GatewayKey, on_delete=models.CASCADE, related_name="usage")
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="usage")
    day = models.DateField()
    requests = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ["-day", "key"]
        constraints = [models.UniqueConstraint(fields=["key", "deployment", "day"], name="usage_once_a_day")]
