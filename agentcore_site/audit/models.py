"""The audit log: actions, actors and addresses. Append-only: a trigger in the database refuses changes."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.postgres.indexes import GistIndex
from django.db import models
from django.db.models import Func, Value
from django.utils import timezone

from agentcore_site.ids import uuid7


class MultirangeField(models.Field):  # type: ignore[type-arg]  # not subscriptable when it runs
    """Whole numbers as ranges, ``int8multirange``."""

    def db_type(self, connection: Any) -> str:
        return "int8multirange"


class AuditEvent(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    at = models.DateTimeField(default=timezone.now, db_index=True)
    organization_id = models.UUIDField(null=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    actor = models.CharField(max_length=150, help_text="The actor's name at the time of the action.")
    door = models.CharField(max_length=40, blank=True)
    ip = models.CharField(max_length=45, blank=True)
    # The default is the database's too: functions of the owner write events as well.
    request_id = models.CharField(
        max_length=64, blank=True, db_default="", db_index=True, help_text="Id of the request that caused the event."
    )
    action = models.CharField(max_length=60, db_index=True)
    target_type = models.CharField(max_length=60, blank=True)
    target_id = models.CharField(max_length=64, blank=True, db_index=True)
    target = models.CharField(max_length=200, blank=True)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    # For its seal (agentcore_site.audit.sealing). An erasure of words changes their salt.
    number = models.BigIntegerField(
        unique=True, editable=False, db_default=Func(Value("audit_auditevent_number"), function="nextval")
    )
    salt = models.UUIDField(editable=False, db_default=Func(function="gen_random_uuid"))

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [models.Index(fields=["organization_id", "number"], name="audit_by_organization")]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"


class Seal(models.Model):
    """A block of lines that were sealed together. ``members``: their numbers; ``top``: the first number after all lines
    sealed so far; ``digests``: the shortened digest of each line; ``previous``: the digest of the seal before it."""

    kind = models.CharField(max_length=20)
    members = MultirangeField()
    top = models.BigIntegerField()
    digests = models.BinaryField()
    previous = models.BinaryField()
    digest = models.BinaryField()
    sealed_at = models.DateTimeField()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["kind", "-id"], name="seals_by_kind"),
            GistIndex(fields=["members"], name="seals_by_member"),
        ]

    def __str__(self) -> str:
        return f"{self.kind}, seal {self.pk}"


class ErasedWords(models.Model):
    """The digest that the words of a line had when the line was sealed. Only the owner's function writes it."""

    number = models.BigIntegerField(primary_key=True)
    digest = models.BinaryField()
    erased_at = models.DateTimeField(default=timezone.now)
    # Set by a migration alone: the words went before an erasure of words named the row that ordered it.
    predates_naming = models.BooleanField(default=False, editable=False)

    def __str__(self) -> str:
        return f"line {self.number}"
