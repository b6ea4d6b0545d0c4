"""The webhook that receives an organisation's audit log, and its progress."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from agentcore_site.tenancy.models import Organization, ScopedManager


class AuditStream(models.Model):
    """A webhook that receives an organisation's audit log, one batch at a time.

    A position in the log is a seal and the number of a line in that seal: a line has one seal, however late its
    transaction ended. ``sent_*``: the last position that was accepted. ``batch_*``: the batch that is being sent, and
    its last position; the batch stays the same until it is accepted.
    """

    organization = models.OneToOneField(Organization, on_delete=models.CASCADE, related_name="+", primary_key=True)
    url = models.URLField(max_length=500)
    secret_version = models.PositiveIntegerField(default=1, editable=False)
    paused = models.BooleanField(default=False)
    sent_seal = models.BigIntegerField(default=0, editable=False)
    sent_number = models.BigIntegerField(default=0, editable=False)
    sent_lines = models.BigIntegerField(default=0, editable=False)
    sent_at = models.DateTimeField(null=True, editable=False)
    batch_id = models.UUIDField(null=True, editable=False)
    batch_seal = models.BigIntegerField(default=0, editable=False)
    batch_number = models.BigIntegerField(default=0, editable=False)
    tries = models.PositiveIntegerField(default=0, editable=False)
    try_after = models.DateTimeField(default=timezone.now, editable=False)
    error = models.CharField(max_length=300, blank=True, editable=False)
    failing_since = models.DateTimeField(null=True, editable=False)
    told_at = models.DateTimeField(null=True, editable=False, help_text="When its admins were notified of the delay.")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ScopedManager()

    class Meta:
        ordering = ["organization"]

    def __str__(self) -> str:
        return f"the audit log of {self.organization}"
