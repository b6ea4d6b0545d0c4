"""Data keys of organisations."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from agentcore_site.tenancy.models import Scoped


class DataKey(Scoped):
    """A key that encrypts an organisation's texts, itself encrypted (``sealed``) by the key of ``holder``.

    Texts name the ``version``. The ``active`` key encrypts new texts; without one, nothing is encrypted. Older keys
    stay for the texts that they encrypted, also in archives. All keys are deleted with the organisation, which makes
    its texts unreadable everywhere.
    """

    version = models.PositiveSmallIntegerField()
    holder = models.CharField(max_length=20, help_text="Provider of the key that decrypts this data key.")
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
