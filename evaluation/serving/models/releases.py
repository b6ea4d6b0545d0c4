"""Releases: immutable rows, numbered by agent. The database refuses to change one."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.tenancy.models import Scoped, ScopedManager
from experiences.models import Agent
from training.models import PolicyCheckpoint


class ReleaseSource(models.TextChoices):
    """The source of a release."""

    CHECKPOINT = "checkpoint", "A job's checkpoint"
    AGENT = "agent", "The agent's state when the release was made"
    PLAYBOOK = "playbook", "A version of its playbook"


class Release(Scoped):
    """An agent in production (``serving.releases.bundle``), and its evidence.
    ``bundle`` is served, byte for byte; ``digest`` is its SHA-256. ``evidence`` holds its measurements, {} without
    any.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="releases")
    number = models.PositiveIntegerField()
    digest = models.CharField(max_length=64, editable=False)
    bundle = models.JSONField(editable=False)
    evidence = models.JSONField(default=dict, editable=False)
    source = models.CharField(max_length=12, choices=ReleaseSource.choices)
    checkpoint = models.ForeignKey(
        PolicyCheckpoint, null=True, blank=True, editable=False, on_delete=models.PROTECT, related_name="releases"
    )
    playbook_version = models.PositiveIntegerField(null=True, blank=True, editable=False)
    note = models.CharField(max_length=300, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["agent", "number"], name="release_number_per_agent")]

    def __str__(self) -> str:
        return f"{self.agent} release {self.number}"


class ReleaseApproval(models.Model):
    """A person's approval of a release. The person who made the release can't approve it (``serving.gate``)."""

    release = models.ForeignKey(Release, on_delete=models.CASCADE, related_name="approvals")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ScopedManager("release__organization")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["release", "by"], name="one_approval_per_person")]

    def __str__(self) -> str:
        return f"{self.by} approved {self.release}"
