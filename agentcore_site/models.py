"""Rows of the site itself."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from agentcore_site.tenancy.models import Scoped


class SiteFact(models.Model):
    """What all hosts of a database must agree on, by name."""

    name = models.CharField(max_length=60, primary_key=True)
    value = models.CharField(max_length=200)
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return self.name


class TableSize(models.Model):
    """What a table took on the disk on one day, its indexes with it, in bytes: how fast it grows."""

    day = models.DateField()
    name = models.CharField(max_length=63)
    size = models.BigIntegerField()

    class Meta:
        ordering = ["day", "name"]
        constraints = [models.UniqueConstraint(fields=["day", "name"], name="one_reading_a_day")]

    def __str__(self) -> str:
        return f"{self.name} {self.day}"


class IdempotencyRecord(Scoped):
    """What was answered to a POST with an idempotency key. Written in the transaction of the work itself."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    operation = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=64, help_text="SHA-256 of operation and input.")
    status = models.PositiveSmallIntegerField(default=0)
    body = models.JSONField(null=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["organization", "user", "key"], name="one_answer_per_idempotency_key")
        ]

    def __str__(self) -> str:
        return f"{self.operation} ({self.key[:20]})"
