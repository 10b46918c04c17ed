"""Many servers that join by SSH: one list, its hosts, and the host keys that an administrator has confirmed.

No password and no key is in any of these: they are with the process that works on the list, and end with it.
"""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from deployments.models.enrolment import Enrolment
from deployments.models.fleet import Server

SILENT_AFTER = timedelta(seconds=15)  # a process that works on a list beats every 2 s


class Phase(models.TextChoices):
    """What is done with the list. Between `reading` and `joining` the administrator confirms the keys."""

    READING = "reading", _("Reading host keys")
    ASKING = "asking", _("Waiting for you")
    JOINING = "joining", _("Joining")
    ENDED = "ended", _("Ended")


class RowState(models.TextChoices):
    NEW = "new", _("not asked yet")
    KEYED = "keyed", _("answers")
    READY = "ready", _("waiting")
    CONNECTING = "connecting", _("connecting")
    INSTALLING = "installing", _("installing")
    JOINED = "joined", _("joined")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")
    LEFT_OUT = "left_out", _("left out")


MOVING = (RowState.READY, RowState.CONNECTING, RowState.INSTALLING)
RETRIABLE = (RowState.FAILED, RowState.CANCELLED, RowState.LEFT_OUT)


class JoinMany(models.Model):
    """One list. `runner` names the process that works on it, '' when none does."""

    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)
    phase = models.CharField(max_length=20, choices=Phase.choices, default=Phase.READING)
    at_once = models.PositiveSmallIntegerField(default=10)
    runner = models.CharField(max_length=40, blank=True, default="")
    beat_at = models.DateTimeField(default=timezone.now)
    cancel_asked = models.BooleanField(default=False)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"join-many {self.pk}"

    @property
    def is_under_way(self) -> bool:
        return self.phase in (Phase.READING, Phase.JOINING)

    @property
    def is_abandoned(self) -> bool:
        """True where a process should work on it and none has said that it does for a while."""
        return self.is_under_way and timezone.now() - self.beat_at > SILENT_AFTER


def no_problem() -> dict[str, Any]:
    return {}


class JoinRow(models.Model):
    """One host. `problem` is {} or {"code", "detail"}; `key` is its host key as `ssh-ed25519 AAAA…`."""

    many = models.ForeignKey(JoinMany, on_delete=models.CASCADE, related_name="rows")
    n = models.PositiveIntegerField()  # its line in the list
    name = models.CharField(max_length=63)
    host = models.CharField(max_length=255)
    port = models.PositiveIntegerField(default=22)
    user = models.CharField(max_length=63)
    rack = models.CharField(max_length=63, blank=True, default="")
    labels = models.JSONField(default=dict, blank=True)
    prefix = models.CharField(max_length=200, blank=True, default="")  # without root, below this folder
    state = models.CharField(max_length=20, choices=RowState.choices, default=RowState.NEW)
    key = models.TextField(blank=True, default="")
    key_known = models.BooleanField(default=False)  # it was confirmed before
    problem = models.JSONField(default=no_problem, blank=True)
    log = models.TextField(blank=True, default="")
    server = models.ForeignKey(Server, null=True, on_delete=models.SET_NULL, related_name="+")
    enrolment = models.ForeignKey(Enrolment, null=True, on_delete=models.SET_NULL, related_name="+")
    began_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["n"]
        constraints = [models.UniqueConstraint(fields=["many", "n"], name="join_row_once")]

    def __str__(self) -> str:
        return f"{self.name} {self.address}"

    @property
    def address(self) -> str:
        """host:port, the port only where it is not 22."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 22 else f"{host}:{self.port}"

    @property
    def took_s(self) -> float | None:
        return (self.ended_at - self.began_at).total_seconds() if self.began_at and self.ended_at else None


class HostKey(models.Model):
    """The key of a host as an administrator has confirmed it; another one is refused from then on."""

    host = models.CharField(max_length=255)
    port = models.PositiveIntegerField(default=22)
    key = models.TextField()
    confirmed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    confirmed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "port"], name="host_key_once")]

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
