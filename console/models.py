"""Users with one of three roles, API tokens, answers kept for repeated calls, and alerts."""

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class Role(models.TextChoices):
    VIEWER = "viewer", _("Viewer")
    OPERATOR = "operator", _("Operator")
    ADMINISTRATOR = "administrator", _("Administrator")


RANK = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMINISTRATOR: 2}


class User(AbstractUser):
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)
    language = models.CharField(max_length=8, blank=True, default="")
    theme = models.CharField(max_length=8, blank=True, default="")

    def may(self, role: str) -> bool:
        """True when this user's role is at least `role`."""
        return self.is_active and RANK[Role(self.role)] >= RANK[Role(role)]


class ApiToken(models.Model):
    """A bearer token. Only its digest is kept; the text is shown once, when it is made."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100, blank=True, default="")
    role = models.CharField(max_length=16, choices=Role.choices)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    @staticmethod
    def digest_of(token: str) -> str:
        return hashlib.sha256(token.encode()).hexdigest()

    @classmethod
    def make(cls, user: User, role: str, *, name: str = "", days: int | None = None) -> tuple["ApiToken", str]:
        """A new token and its text, which nobody can read again."""
        text = "ac_" + secrets.token_urlsafe(32)
        expires = timezone.now() + timedelta(days=days) if days else None
        return cls.objects.create(user=user, role=role, name=name, digest=cls.digest_of(text), expires_at=expires), text

    def may(self, role: str) -> bool:
        """The lower of the token's role and its user's decides."""
        return RANK[Role(self.role)] >= RANK[Role(role)] and self.user.may(role)


class KeptAnswer(models.Model):
    """The first answer to a call with an Idempotency-Key; the same call again gets it back."""

    user = models.ForeignKey(User, on_delete=models.CASCADE)
    key = models.CharField(max_length=200)
    request_digest = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(default=0)  # 0: the first call is still being answered
    body = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="kept_answer_once_per_user")]


class Severity(models.TextChoices):
    INFO = "info", _("Note")
    WARNING = "warning", _("Warning")
    CRITICAL = "critical", _("Critical")


class Alert(models.Model):
    """Something that needs attention; console/alerts.py opens and ends it. `what` and `do` are [zh, en]."""

    name = models.CharField(max_length=60)
    subject = models.CharField(max_length=100, blank=True, default="")
    severity = models.CharField(max_length=10, choices=Severity.choices, default=Severity.WARNING)
    what = models.JSONField()
    do = models.JSONField()
    link = models.CharField(max_length=300, blank=True, default="")
    count = models.PositiveIntegerField(default=1)
    started_at = models.DateTimeField(default=timezone.now)
    last_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True, db_index=True)
    resolved_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["name", "subject"], condition=models.Q(ended_at=None), name="alert_open_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.subject}".strip()
