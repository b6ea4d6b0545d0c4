"""Rows of the site itself."""

from __future__ import annotations

from urllib.parse import urlencode

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.tenancy.models import Scoped


class SiteFact(models.Model):
    """A value that all hosts of a database must agree on, by name."""

    name = models.CharField(max_length=60, primary_key=True)
    value = models.CharField(max_length=200)
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return self.name


class TableSize(models.Model):
    """A table's size on the disk on one day, with its indexes, in bytes."""

    day = models.DateField()
    name = models.CharField(max_length=63)
    size = models.BigIntegerField()

    class Meta:
        ordering = ["day", "name"]
        constraints = [models.UniqueConstraint(fields=["day", "name"], name="one_reading_a_day")]

    def __str__(self) -> str:
        return f"{self.name} {self.day}"


class IdempotencyRecord(Scoped):
    """The answer to a POST with an idempotency key. Written in the transaction of the work itself."""

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


class SavedView(Scoped):
    """A person's name for what a list shows: its search, filters and order.

    ``page``: the name of the list's address (``training:jobs``). ``asked``: the parameters of the address, each with
    its values. ``opens``: the list opens with it for its person where the address says nothing.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    page = models.CharField(max_length=60)
    name = models.CharField(max_length=60)
    asked = models.JSONField(default=dict, blank=True)
    shared = models.BooleanField(
        default=False, help_text="All members of the organisation see the view above the list."
    )
    opens = models.BooleanField(default=False, help_text="The list opens with this view for its owner.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["organization", "person", "page", "name"], name="one_view_of_a_name"),
            models.UniqueConstraint(
                fields=["organization", "person", "page"], condition=models.Q(opens=True), name="one_view_opens_a_list"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def address(self) -> str:
        return f"{reverse(self.page)}?{urlencode(self.asked | {'view': str(self.pk)}, doseq=True)}"
