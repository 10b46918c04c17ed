"""Links by which somebody without an account reads one log."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from deployments.models.deployment import EngineLog
from deployments.models.job import Attempt


class LogShare(models.Model):
    """A link to one log, read-only, until a time. Of its token only the digest is kept; with its log it goes, too."""

    digest = models.CharField(max_length=64, unique=True)
    attempt = models.ForeignKey(Attempt, null=True, blank=True, on_delete=models.CASCADE, related_name="shares")
    piece = models.ForeignKey(EngineLog, null=True, blank=True, on_delete=models.CASCADE, related_name="shares")
    until = models.DateTimeField()
    made_at = models.DateTimeField(default=timezone.now)
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    opens = models.PositiveIntegerField(default=0)
    opened_at = models.DateTimeField(null=True, blank=True)  # when it was opened last

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                name="log_share_of_one_log",
                condition=Q(attempt__isnull=False, piece__isnull=True) | Q(attempt__isnull=True, piece__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return f"{self.attempt_id or self.piece_id} until {self.until:%Y-%m-%d %H:%M}"

    @property
    def head(self) -> Attempt | EngineLog:
        found = self.attempt or self.piece
        assert found is not None  # the constraint holds it
        return found

    @property
    def is_expired(self) -> bool:
        return self.until <= timezone.now()

    @property
    def works(self) -> bool:
        return self.revoked_at is None and not self.is_expired
