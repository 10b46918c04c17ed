"""Servers and NPUs."""

import secrets
from datetime import timedelta

from django.conf import settings
from django.db import models
from django.utils import timezone


def new_key() -> str:
    return secrets.token_hex(32)


class ServerQuerySet(models.QuerySet["Server"]):
    def present(self) -> "ServerQuerySet":
        """Without those that were decommissioned: their record is kept, and they are no part of the fleet."""
        return self.filter(decommissioned_at=None)


class Server(models.Model):
    """One host. `simulated` servers belong to the demo fleet and never count as real ones.

    Who it is says the id with its key; name, host name and addresses are facts that may change.
    `cordons`: {bus id: {"reason", "by", "at"}}. `quarantine`: None, or what deployments/services/clones.py wrote.
    """

    name = models.SlugField(max_length=63, unique=True)
    display_name = models.CharField(max_length=100, blank=True, default="")
    hostname = models.CharField(max_length=255, blank=True, default="")
    site = models.CharField(max_length=63, blank=True, default="")
    rack = models.CharField(max_length=63, blank=True, default="")
    labels = models.JSONField(default=dict, blank=True)
    notes = models.TextField(blank=True, default="")
    address_roles = models.JSONField(default=dict, blank=True)  # {address: management | service | bmc}
    simulated = models.BooleanField(default=False)
    is_local = models.BooleanField(default=False)  # the machine that the console itself runs on
    maintenance = models.BooleanField(default=False)  # of the jobs, only checks start
    queue_paused = models.BooleanField(default=False)  # no job starts
    queue_paused_reason = models.CharField(max_length=200, blank=True, default="")
    queue_paused_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    queue_paused_at = models.DateTimeField(null=True, blank=True)
    draining = models.BooleanField(default=False)  # no job starts, and what runs may end
    drain_reason = models.CharField(max_length=200, blank=True, default="")
    drain_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    drain_at = models.DateTimeField(null=True, blank=True)
    drained_at = models.DateTimeField(null=True, blank=True)  # when its last job had ended
    cordons = models.JSONField(default=dict, blank=True)
    quarantine = models.JSONField(null=True, blank=True)
    leaving_at = models.DateTimeField(null=True, blank=True)  # its agent was asked to remove itself
    decommissioned_at = models.DateTimeField(null=True, blank=True)
    key = models.CharField(max_length=64, default=new_key)  # HMAC key of this server's job payloads, hex
    redis_password = models.CharField(max_length=64, default=new_key)
    facts = models.JSONField(default=dict, blank=True)  # shape: deployments/agent/facts.py
    facts_at = models.DateTimeField(null=True, blank=True)  # when the agent last found them so
    family = models.CharField(max_length=40, blank=True, default="")  # the chip name most of its NPUs print
    wished_stack = models.CharField(max_length=63, blank=True, default="")  # name of a stack; '' where none is wished
    last_seen_at = models.DateTimeField(null=True, blank=True)  # last beat or sample, by the console's clock
    clock_offset_s = models.FloatField(null=True, blank=True)  # server's clock minus ours
    # What its agent says of itself in each beat; `agent_code` is '' where it comes with the console, see agent.code().
    agent_version = models.CharField(max_length=40, blank=True, default="")
    agent_code = models.CharField(max_length=16, blank=True, default="")
    agent_protocol = models.PositiveSmallIntegerField(default=1)
    # What its agent counts, as its beat says: payloads refused and why the last was, payloads that came again.
    refused = models.PositiveIntegerField(default=0)
    already = models.PositiveIntegerField(default=0)
    last_refusal = models.CharField(max_length=200, blank=True, default="")
    # A change of driver or firmware that failed, until one succeeds: services/host_changes.py has its shape.
    host_failure = models.JSONField(null=True, blank=True)
    cut_off_at = models.DateTimeField(null=True, blank=True)  # its user in Redis is off, see services/quota.py
    cut_off_reason = models.JSONField(null=True, blank=True)  # [zh, en]
    keys_changed_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    # Where reading of the server's streams goes on; committed together with the rows read.
    telemetry_cursor = models.CharField(max_length=40, default="0")
    logs_cursor = models.CharField(max_length=40, default="0")

    objects = ServerQuerySet.as_manager()

    class Meta:
        ordering = ["rack", "name"]

    def __str__(self) -> str:
        return self.name

    @property
    def has_root(self) -> bool:
        """Whether its agent says that it has a way to root; False also where it has not said so."""
        return self.simulated or self.facts.get("root") in ("root", "helper", "old")

    @property
    def is_silent(self) -> bool:
        """True when nothing was heard for SILENT_AFTER_S, or ever: it takes a job later, if it comes back."""
        return self._unheard_for(settings.SILENT_AFTER_S)

    @property
    def is_offline(self) -> bool:
        """True when nothing was heard for OFFLINE_AFTER_S, or ever."""
        return self._unheard_for(settings.OFFLINE_AFTER_S)

    @property
    def is_gone(self) -> bool:
        return self.decommissioned_at is not None

    def _unheard_for(self, seconds: float) -> bool:
        return self.last_seen_at is None or timezone.now() - self.last_seen_at > timedelta(seconds=seconds)


class Npu(models.Model):
    """One addressable chip, as last seen. `bus_id` is None where npu-smi prints NA."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="npus")
    device_index = models.PositiveSmallIntegerField()  # order printed; changes when a card is lost
    npu_id = models.PositiveIntegerField()
    chip_id = models.PositiveSmallIntegerField()
    bus_id = models.CharField(max_length=20, null=True, blank=True)
    name = models.CharField(max_length=40, blank=True, default="")
    memory_total_mb = models.PositiveIntegerField(null=True, blank=True)  # HBM, or DDR where there is no HBM
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["server", "device_index"]
        constraints = [models.UniqueConstraint(fields=["server", "npu_id", "chip_id"], name="npu_once_per_server")]

    def __str__(self) -> str:
        return f"{self.server_id}:{self.npu_id}.{self.chip_id}"
