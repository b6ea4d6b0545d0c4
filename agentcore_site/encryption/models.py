"""Data keys of organisations."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from agentcore_site.tenancy.models import Scoped


class DataKey(Scoped):
    """A key that an organisation's texts are encrypted with, itself encrypted (``sealed``) by the key of ``holder``.

    Texts name the ``version``. The one that is ``active`` encrypts what is written; without one, nothing is encrypted.
    Older ones stay for what they encrypted, also in archives; all go with the organisation, which makes its texts
    unreadable wherever they are.
    """

    version = models.PositiveSmallIntegerField()
    holder = models.CharField(max_length=20, help_text="Who has the key that opens it.")
    sealed = models.TextField()
    active = models.BooleanField()
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["organization", "version"]
        constraints = [
            models.UniqueConstraint(fields=["organization", "version"], name="one_data_key_per_version"),
            models.UniqueConstraint(fields=["organization"], condition=Q(active=True), name="one_active_data_key"),
        ]

    def __str__(self) -> str:
        return f"data key {self.version}"
