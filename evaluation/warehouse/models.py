"""Pending changes for roll-ups and warehouse, the warehouse's position in them, and figures per hour."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from agentcore_site.tenancy.models import ScopedManager


class ChangeSink(models.TextChoices):
    """The readers of changes; each deletes its own notes."""

    ROLLUPS = "rollups", "Roll-ups"
    WAREHOUSE = "warehouse", "Warehouse"


class ChangeKind(models.TextChoices):
    TRAJECTORY = "trajectory", "Trajectories"
    TRAINING = "training", "Trainings"


class RowChange(models.Model):
    """Rows that were written, changed or deleted, noted in their transaction by triggers (migration 0001).

    One note is of all rows of a statement in one hour. ``hour`` and ``month`` (of the partition) are null for jobs.
    ``keys`` are the rows' ids, for the warehouse alone: a roll-up recounts the hour.
    """

    id = models.BigAutoField(primary_key=True)
    sink = models.CharField(max_length=10, choices=ChangeSink.choices)
    kind = models.CharField(max_length=10, choices=ChangeKind.choices)
    organization_id = models.UUIDField()
    hour = models.DateTimeField(null=True)
    month = models.DateField(null=True)
    keys = ArrayField(models.UUIDField(), default=list)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = ScopedManager("organization_id")

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["sink", "id"], name="changes_by_sink")]

    def __str__(self) -> str:
        return f"{len(self.keys)} {self.kind} for {self.sink}"


class WarehouseStore(models.Model):
    """The warehouse that is filled: one row, or none. While there is none nothing is noted for it.

    ``batch`` numbers what was sent, and is the version of its rows. Once no note up to ``first`` waits, all rows that
    were there when it was set up are stored, and dashboards ask it. ``filled_at``: when it last had everything.
    """

    name = models.CharField(max_length=10, primary_key=True, default=ChangeSink.WAREHOUSE, editable=False)
    batch = models.BigIntegerField(default=0)
    first = models.BigIntegerField(default=0)
    filled_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.name


class HourlyMeasure(models.Model):
    """The roll-up of one measure of trajectories in one hour, by agent, purpose, arm and model.

    ``n`` values with the sum ``total`` and the sum of their squares ``squares``. ``bucket`` is the place of a value in
    the distribution of its measure (``warehouse/measures.py``).
    """

    id = models.BigAutoField(primary_key=True)
    organization_id = models.UUIDField()
    agent_id = models.UUIDField()
    purpose = models.CharField(max_length=12)
    arm = models.CharField(max_length=10)
    model = models.CharField(max_length=200)
    hour = models.DateTimeField()
    day = models.DateField()
    measure = models.CharField(max_length=90)
    bucket = models.SmallIntegerField()
    n = models.BigIntegerField()
    total = models.FloatField()
    squares = models.FloatField()

    objects = ScopedManager("organization_id")

    class Meta:
        db_table = "warehouse_measure"
        ordering = ["hour", "id"]
        indexes = [models.Index(fields=["organization_id", "hour"], name="measures_by_hour")]

    def __str__(self) -> str:
        return f"{self.measure} of {self.n} at {self.hour}"
