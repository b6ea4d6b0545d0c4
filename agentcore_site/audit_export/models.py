"""Where an organisation's audit log is sent, and how far it got."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from agentcore_site.tenancy.models import Organization, ScopedManager


class AuditStream(models.Model):
    """A webhook that gets an organisation's audit log, a batch at a time.

    A place in the log is a seal and a number of a line in it: a line has its seal once, however late its transaction
    ended. ``sent_*``: the last place that was taken. ``batch_*``: the batch that is under way, and the place at which
    it ends; it stays the same until it was taken.
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
    told_at = models.DateTimeField(null=True, editable=False, help_text="When its admins were told that it is stuck.")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ScopedManager()

    class Meta:
        ordering = ["organization"]

    def __str__(self) -> str:
        return f"the audit log of {self.organization}"
