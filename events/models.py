"""What waits to be told to others."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils import timezone

from agentcore_site.tenancy.models import Scoped, ScopedManager


class EventKind(models.TextChoices):
    """What happened; each has a subject."""

    TRAJECTORY = "trajectory", "Trajectory"
    REWARD = "reward", "Reward"
    STATUS = "status", "Training status"
    DEPLOYED = "deployed", "Deployment"
    REQUEST = "request", "Training request"


class EventPublisher(Scoped):
    """An organisation whose events are published. Without a row nothing of it is noted for others."""

    organization = models.OneToOneField(
        "tenancy.Organization", on_delete=models.CASCADE, primary_key=True, related_name="event_publisher"
    )
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    def __str__(self) -> str:
        return f"events of {self.organization}"


class OutboxEvent(models.Model):
    """Something that happened and has to be published, written in its transaction by triggers (migration 0001).

    It names its row (``key``, and ``month`` where the row stands in a partition) and holds no copy of it: the payload
    is made when it is sent. ``data`` are figures that the row will not have any more by then. ``try_after`` is the end
    of the lease of the relay that took it. ``withheld`` says why a settled one was not published.
    """

    id = models.BigAutoField(primary_key=True)
    message_id = models.UUIDField(editable=False)
    organization_id = models.UUIDField()
    kind = models.CharField(max_length=10, choices=EventKind.choices)
    key = models.UUIDField()
    month = models.DateField(null=True)
    data: Any = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    tries = models.PositiveSmallIntegerField(db_default=0)
    try_after = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True)
    withheld = models.CharField(max_length=60, db_default="")

    objects = ScopedManager()

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(fields=["id"], name="outbox_waiting", condition=models.Q(settled_at=None)),
            models.Index(fields=["settled_at"], name="outbox_settled"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.key}"


OutboxEvent.objects.path = "organization_id"

PUBLISHED_PURPOSES: Final = ("training", "received")  # never what an agent is tested with
