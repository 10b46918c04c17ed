"""A change of one server's keys that is under way."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from deployments.models.fleet import Server, new_key


class Phase(models.TextChoices):
    ASKED = "asked"  # the server has the old keys, or both; the console goes by the old
    TAKEN = "taken"  # the console goes by the new ones; Redis may know the old password still
    CLOSED = "closed"  # Redis takes the new password only; the server may know the old keys still


class Rotation(models.Model):
    """At most one a server; the row goes when the server has forgotten the old keys."""

    server = models.OneToOneField(Server, on_delete=models.CASCADE, related_name="rotation")
    key = models.CharField(max_length=64, default=new_key)
    password = models.CharField(max_length=64, default=new_key)
    phase = models.CharField(max_length=10, choices=Phase.choices, default=Phase.ASKED)
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    started_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"rotation of {self.server_id}: {self.phase}"
