"""What happened to servers, and filters that people keep."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from deployments.models.fleet import Server


class ServerChange(models.Model):
    """One change of one thing about a server. `by_name` is '' where it changed by itself.

    `field` is a key of deployments/services/history.py; `before` and `after` are JSON, None where there was nothing.
    Changes made together have one `change_set`; those that were taken back have `undone_at`.
    """

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="changes")
    at = models.DateTimeField(default=timezone.now)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    by_name = models.CharField(max_length=150, blank=True, default="")
    field = models.CharField(max_length=40)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    reason = models.CharField(max_length=200, blank=True, default="")
    ticket = models.CharField(max_length=100, blank=True, default="")
    change_set = models.CharField(max_length=16, db_index=True)
    undone_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["server", "-id"], name="change_by_server")]

    def __str__(self) -> str:
        return f"{self.server_id} {self.field}"


class SavedFilter(models.Model):
    """A view of the fleet under a name. `query` is the address behind "?"; a shared one is shown to everybody."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_filters")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=500)
    shared = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="filter_once_per_user")]

    def __str__(self) -> str:
        return self.name
