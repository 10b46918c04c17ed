"""Orders: what the console tells agents themselves, and what they answered."""

import secrets

from django.conf import settings
from django.db import models
from django.utils import timezone

from deployments.models.fleet import Server
from deployments.steps import Text


def new_nonce() -> str:
    return secrets.token_hex(16)


class OrderState(models.TextChoices):
    SENT = "sent"
    DONE = "done"
    FAILED = "failed"  # the agent cannot; `words` say why
    EXPIRED = "expired"  # nobody answered in time


class Order(models.Model):
    """One order to one server's agent. `args` may hold secrets: they are emptied when it ends."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="orders")
    do = models.CharField(max_length=40)
    args = models.JSONField(default=dict)
    nonce = models.CharField(max_length=64, unique=True, default=new_nonce)
    state = models.CharField(max_length=10, choices=OrderState.choices, default=OrderState.SENT)
    words = models.CharField(max_length=300, blank=True, default="")
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    not_after = models.DateTimeField()
    pushed_at = models.DateTimeField(null=True, blank=True)
    pushes = models.PositiveIntegerField(default=0)
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["state", "server"], name="order_by_state")]

    @property
    def answer(self) -> Text:
        """Why it was not carried out; an agent of before says it in English only. Both are '' where it does not say."""
        en, _, zh = self.words.partition("\n")
        return Text(zh or en, en)

    def __str__(self) -> str:
        return f"order {self.do} to {self.server_id}"
