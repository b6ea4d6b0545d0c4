"""Annotations of trajectories and of their steps."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.tenancy.models import Scoped, ScopedManager
from experiences.models.agents import Agent


class Annotation(Scoped):
    """A comment, a label, a score or the correct answer, by a person, on a trajectory or on one step of it.

    ``month`` and ``trajectory_id`` are the trajectory's key: no foreign key can point into a table whose months are
    archived and dropped, and an annotation outlives that move. ``step`` counts from 1; null is the whole trajectory.
    ``answer`` is what would have been right: a dataset made of annotated trajectories expects it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+")
    job_id = models.UUIDField(editable=False)
    month = models.DateField(editable=False)
    trajectory_id = models.UUIDField(editable=False)
    step = models.PositiveIntegerField(null=True, editable=False)
    label = models.CharField(max_length=40, blank=True)
    score = models.FloatField(null=True)
    comment = models.TextField(blank=True)
    answer = models.TextField(blank=True)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    objects: ClassVar[ScopedManager] = ScopedManager(needs="data.view")

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [
            models.Index(fields=["month", "trajectory_id"], name="annotations_of_trajectory"),
            models.Index(fields=["organization", "label"], name="annotations_by_label"),
        ]

    def __str__(self) -> str:
        return f"annotation of {self.trajectory_id}"

    @property
    def by(self) -> str:
        """The author's name; "" once the account is gone."""
        author: Any = self.author
        return author.get_username() if author is not None else ""
