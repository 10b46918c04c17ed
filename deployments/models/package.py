"""Packages of the vendor: which file of that name is the right one."""

from django.conf import settings
from django.db import models
from django.utils import timezone


class VendorPackage(models.Model):
    """`sha256` of a file, as the vendor's page or an administrator's own copy has it; root runs no other."""

    name = models.CharField(max_length=200, unique=True)
    sha256 = models.CharField(max_length=64)
    size = models.PositiveBigIntegerField(null=True, blank=True)  # bytes, where it is known
    source = models.CharField(max_length=300, blank=True, default="")  # where the digest is from
    added_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    added_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
