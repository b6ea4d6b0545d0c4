"""Trajectories that are no longer in the database: files in object storage, and what is known of each."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.tenancy.models import Scoped
from experiences.models.agents import Agent


class ArchiveState(models.TextChoices):
    """``written``: read back and right, with the rows still in the database. ``archived``: only the file has them."""

    WRITTEN = "written", "Written"
    ARCHIVED = "archived", "Archived"
    DELETED = "deleted", "Deleted"


class TrajectoryArchive(Scoped):
    """One Parquet file: jobs of one agent and month. ``revision`` rises when an erasure rewrites it."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+")
    month = models.DateField()
    state = models.CharField(max_length=10, choices=ArchiveState.choices, default=ArchiveState.WRITTEN)
    revision = models.PositiveIntegerField(default=1)
    sha256 = models.CharField(max_length=64)
    size = models.BigIntegerField(help_text="Bytes of the file.")
    rows = models.BigIntegerField()
    first_at = models.DateTimeField(help_text="Start of its oldest trajectory.")
    last_at = models.DateTimeField()
    written_at = models.DateTimeField(default=timezone.now)
    archived_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-month", "-written_at"]
        indexes = [models.Index(fields=["organization", "month"], name="archives_by_month")]

    def __str__(self) -> str:
        return f"{self.agent} {self.month:%Y-%m}"

    @property
    def folder(self) -> str:
        return folder_of(self.organization_id)

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.agent_id}/{self.month:%Y-%m}/{self.id}-{self.revision}.parquet"

    @property
    def manifest(self) -> str:
        """Path of its manifest, which describes the file for a reader without this database."""
        return f"{self.path}.json"


def folder_of(organization_id: Any) -> str:
    """Folder of the archives of an organisation."""
    return f"archive/{organization_id}"


class ArchivedJob(Scoped):
    """The rows of one job in an archive: ``groups`` row groups from ``first_group`` on. ``mark`` is the sum of their
    digests (``experiences_trajectory_marks``), ``versions`` that of the numbers of their versions in the table when the
    file was written (``experiences_row_version``; null: not known). ``restored_at``: the rows, asked for at
    ``restore_asked_at``, are in the database again."""

    id = models.BigAutoField(primary_key=True)
    archive = models.ForeignKey(TrajectoryArchive, on_delete=models.CASCADE, related_name="jobs")
    job_id = models.UUIDField()
    rows = models.BigIntegerField()
    mark = models.DecimalField(max_digits=40, decimal_places=0)
    versions = models.DecimalField(max_digits=40, decimal_places=0, null=True)
    first_group = models.IntegerField()
    groups = models.IntegerField()
    restore_asked_at = models.DateTimeField(null=True)
    restored_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["job_id"], name="archived_by_job")]

    def __str__(self) -> str:
        return f"{self.rows} rows of job {str(self.job_id)[-6:]}"


class ArchiveRule(Scoped):
    """Retention of archives: of one agent, or (without one) of all agents of the organisation."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.OneToOneField(Agent, null=True, on_delete=models.CASCADE, related_name="+")
    keep_days = models.PositiveIntegerField(help_text="Days until an archive is deleted; 0: never.")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["organization"], condition=Q(agent__isnull=True), name="one_archive_rule_of_an_organization"
            )
        ]

    def __str__(self) -> str:
        return f"{self.keep_days} days"
