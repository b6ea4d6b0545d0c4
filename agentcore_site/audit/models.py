"""The audit log: actions, actors and addresses. Append-only: a trigger in the database refuses changes."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from agentcore_site.ids import uuid7


class AuditEvent(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    at = models.DateTimeField(default=timezone.now, db_index=True)
    organization_id = models.UUIDField(null=True, db_index=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    actor = models.CharField(max_length=150, help_text="The actor's name as it was then.")
    door = models.CharField(max_length=40, blank=True)
    ip = models.CharField(max_length=45, blank=True)
    # The default is the database's too: functions of the owner write events as well.
    request_id = models.CharField(
        max_length=64, blank=True, db_default="", db_index=True, help_text="Of what asked for it."
    )
    action = models.CharField(max_length=60, db_index=True)
    target_type = models.CharField(max_length=60, blank=True)
    target_id = models.CharField(max_length=64, blank=True, db_index=True)
    target = models.CharField(max_length=200, blank=True)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)

    class Meta:
        ordering = ["-at", "-id"]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"
