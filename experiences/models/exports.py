"""Exports that a job writes: what was asked for, how far it is, and the parts of its file in object storage."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models

from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.models import Scoped, ScopedManager


class TrajectoryExport(Scoped):
    """One file of trajectories. ``until``: those that began later are left out. ``mark``: the place up to which rows
    are written (``exports.selection.Mark``). ``archives``: the archived jobs that it reads, as they were when it
    began."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="trajectory_export")
    format = models.CharField(max_length=10)
    filters = models.JSONField(default=dict)
    until = models.DateTimeField()
    total = models.BigIntegerField(null=True, help_text="Approximate number of trajectories that match the filters.")
    read = models.BigIntegerField(default=0, help_text="Number of trajectories read.")
    rows = models.BigIntegerField(default=0, help_text="Number of rows of the file.")
    size = models.BigIntegerField(default=0, help_text="Size of the file in bytes.")
    mark = models.JSONField(null=True)
    archives = models.JSONField(default=list)
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-job__created_at"]

    def __str__(self) -> str:
        return f"export as {self.format}"

    @property
    def folder(self) -> str:
        return f"{folder_of(self.organization_id)}/{self.pk}"

    @property
    def is_there(self) -> bool:
        """True if the file can be downloaded."""
        return self.job.status == Status.COMPLETED and self.deleted_at is None

    @property
    def kept_until(self) -> datetime | None:
        """The time at which the file is deleted; None: it is not there, or is kept forever."""
        if not self.is_there or self.job.finished_at is None or not settings.EXPORT_DAYS:
            return None
        return self.job.finished_at + timedelta(days=settings.EXPORT_DAYS)


class ExportPart(models.Model):
    """A part of an export's file. ``size`` and ``sha256`` are of what is downloaded; ``key_version``: the data key that
    encrypts it in the storage, 0 for none."""

    id = models.BigAutoField(primary_key=True)
    export = models.ForeignKey(TrajectoryExport, on_delete=models.CASCADE, related_name="parts")
    number = models.PositiveIntegerField()
    path = models.CharField(max_length=200)
    rows = models.BigIntegerField()
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    key_version = models.PositiveSmallIntegerField(default=0)

    objects = ScopedManager("export__organization")

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["export", "number"], name="one_part_of_a_number")]

    def __str__(self) -> str:
        return f"part {self.number}"


def folder_of(organization_id: Any) -> str:
    """Folder of the exports of an organisation."""
    return f"exports/{organization_id}"
