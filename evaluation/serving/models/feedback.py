"""Feedback of people, programs and rules on answers in production."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.tenancy.models import Scoped, ScopedManager
from evaluation.serving.models.traces import ProductionTrace


class FeedbackSource(models.TextChoices):
    EXPLICIT = "explicit", "Given"
    IMPLICIT = "implicit", "Detected by a rule"


class Feedback(Scoped):
    """One metric of one trace by one giver, who may change it: the newest counts.

    ``giver`` is a person, a key or the rules. ``value`` is null where there is only a text: a correction, a comment.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    trace = models.ForeignKey(ProductionTrace, on_delete=models.CASCADE, related_name="feedback")
    metric = models.CharField(max_length=40)
    value = models.FloatField(null=True)
    text = models.TextField(blank=True)
    source = models.CharField(max_length=8, choices=FeedbackSource.choices, default=FeedbackSource.EXPLICIT)
    giver = models.CharField(max_length=40, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    objects: ClassVar[ScopedManager] = ScopedManager(needs="data.view")

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["trace", "metric", "giver"], name="one_opinion_per_giver")]
        indexes = [models.Index(fields=["organization", "-id"], name="feedback_of_organization")]

    def __str__(self) -> str:
        return f"{self.metric} of {self.trace_id}"
