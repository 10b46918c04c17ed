"""One-time commands by which servers join."""

import base64
import hashlib
import secrets
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.crypto import salted_hmac

from deployments.models.fleet import Server


def new_salt() -> str:
    return secrets.token_hex(16)


def no_steps() -> dict[str, Any]:
    return {"problems": []}


class Enrolment(models.Model):
    """One command. Its token is made of the row's salt and SECRET_KEY, so the database alone gives nobody a token.

    `steps`: {"called", "online", "reading": ISO times once reached, "stream": the id that the server's telemetry
    stream ended with before, "problems": [{"code", "detail", "at"}]}
    """

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="enrolments")
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    salt = models.CharField(max_length=32, default=new_salt)
    digest = models.CharField(max_length=64, unique=True)  # of the token
    script_digest = models.CharField(max_length=64, blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)  # when the server's credentials were handed out
    address = models.GenericIPAddressField(null=True, blank=True)  # where the first call came from
    root_helper = models.BooleanField(default=True)  # joining as root installs it
    steps = models.JSONField(default=no_steps)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"enrolment {self.pk} of {self.server_id}"

    @property
    def token(self) -> str:
        mac = salted_hmac("deployments.enrolment", self.salt, algorithm="sha256").digest()
        return base64.urlsafe_b64encode(mac).decode().rstrip("=")

    @staticmethod
    def digest_of(token: str) -> str:
        return hashlib.sha256(token.encode()).hexdigest()

    @property
    def is_expired(self) -> bool:
        return self.expires_at <= timezone.now()
