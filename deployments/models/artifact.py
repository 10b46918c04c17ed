"""Models: one row for each content, and where copies of it lie."""

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from deployments.models.fleet import Server
from deployments.models.job import Job


class Via(models.TextChoices):
    """How an artifact came about: the edge to its parent."""

    FOUND = "found", _("found")
    DOWNLOADED = "downloaded", _("downloaded")
    UPLOADED = "uploaded", _("uploaded")
    SAMPLE = "sample", _("sample")
    COPIED = "copied", _("copied")
    CONVERTED = "converted", _("converted")
    QUANTIZED = "quantized", _("quantized")


class Artifact(models.Model):
    """One content, wherever it lies. `summary` is what deployments/artifacts/read.py tells of it, without its path.

    `gate` is None until it was evaluated against its parent; its shape is that of the service which judges.
    `simulated`: it lies on simulated servers alone.
    """

    name = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=64, unique=True)
    format = models.CharField(max_length=20)
    summary = models.JSONField(default=dict)
    bytes = models.PositiveBigIntegerField(default=0)
    digest = models.CharField(max_length=64, blank=True, default="")  # of its manifest, where its files were digested
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="children")
    made_by = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="artifacts")
    via = models.CharField(max_length=12, choices=Via.choices, default=Via.FOUND)
    source = models.CharField(max_length=500, blank=True, default="")  # where it was fetched from
    gate = models.JSONField(null=True, blank=True)
    simulated = models.BooleanField(default=False)
    notes = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["name"], name="artifact_by_name")]

    def __str__(self) -> str:
        return self.name


class PlaceQuerySet(models.QuerySet["ArtifactPlace"]):
    def present(self) -> "PlaceQuerySet":
        """Copies that lie there, as far as is known, on servers of the fleet: what is on others nobody gets at."""
        return self.filter(gone_at=None, server__decommissioned_at=None)


class ArtifactPlace(models.Model):
    """A folder on a server. `problems`: [[code, [zh, en], missing]] of what is wrong with this copy.

    `gone_at` is when it was found to be gone: the row stays, for it tells what became of the copy.
    """

    artifact = models.ForeignKey(Artifact, on_delete=models.CASCADE, related_name="places")
    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="places")
    path = models.CharField(max_length=1000)
    problems = models.JSONField(default=list)
    bytes = models.PositiveBigIntegerField(default=0)
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")  # that told of it
    first_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)
    gone_at = models.DateTimeField(null=True, blank=True)

    objects = PlaceQuerySet.as_manager()

    class Meta:
        ordering = ["server", "path"]
        constraints = [models.UniqueConstraint(fields=["server", "path"], name="place_once_per_server")]

    def __str__(self) -> str:
        return f"{self.server_id}:{self.path}"

    @property
    def whole(self) -> bool:
        return not self.problems and self.gone_at is None
