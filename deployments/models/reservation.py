"""What of a server is promised to somebody: NPUs to replicas and to people, ports to engines."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from deployments.models.deployment import Replica
from deployments.models.fleet import Server


class Hold(models.Model):
    """NPUs kept for a person or team until a date; it ends by itself, with a notice."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="holds")
    team = models.CharField(max_length=100)
    reason = models.CharField(max_length=300)
    ticket = models.CharField(max_length=100, blank=True, default="")
    until = models.DateTimeField()
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]


class Reservation(models.Model):
    """One NPU, promised to one replica or one hold: the constraint is what keeps two from sharing it.

    `npu` is its bus id, with `/chip` where several chips have the same.
    """

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="reservations")
    npu = models.CharField(max_length=32)
    replica = models.ForeignKey(Replica, null=True, on_delete=models.CASCADE, related_name="reservations")
    hold = models.ForeignKey(Hold, null=True, on_delete=models.CASCADE, related_name="reservations")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["server", "npu"]
        constraints = [models.UniqueConstraint(fields=["server", "npu"], name="npu_reserved_once")]


class PortLease(models.Model):
    """A port of a server, kept for as long as a replica or gateway lives. `purpose`: http | ray | dp | hccl | gateway |
    router. One of `replica` and `gateway` is given."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="ports")
    port = models.PositiveIntegerField()
    purpose = models.CharField(max_length=10, default="http")
    replica = models.ForeignKey(Replica, null=True, on_delete=models.CASCADE, related_name="ports")
    gateway = models.ForeignKey("Gateway", null=True, on_delete=models.CASCADE, related_name="ports")

    class Meta:
        ordering = ["server", "port"]
        constraints = [models.UniqueConstraint(fields=["server", "port"], name="port_leased_once")]
