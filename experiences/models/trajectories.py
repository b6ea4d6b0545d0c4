"""Datasets of queries, trajectories and their groups."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models
from django.db.models.functions import Upper
from django.utils import timezone
from django.utils.text import slugify

from agentcore_site.encryption.columns import JSON, EncryptedTable, SealedJSONField, tables
from agentcore_site.ids import uuid7
from agentcore_site.tenancy.models import Scoped, ScopedManager


class DatasetOrigin(models.TextChoices):
    """Origin of a dataset's rows."""

    SENT = "sent", "Sent by a program"
    FILE = "file", "Uploaded as a file"
    LAUNCH = "launch", "Given with a job"
    TRACES = "traces", "Taken from production traces"
    ANNOTATED = "annotated", "Taken from annotated trajectories"
    PLAYGROUND = "playground", "Written in the playground"


class Dataset(Scoped):
    """Queries whose outcome can be checked, uploaded once and never changed (a change is a new dataset); what they are
    about can be said later."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=120)
    domain = models.CharField(
        max_length=60,
        blank=True,
        default="",
        db_default="",
        help_text="Topic of its queries; selects the prompt pack of the same domain.",
    )
    sha256 = models.CharField(max_length=64, editable=False)
    size = models.PositiveIntegerField(editable=False, help_text="Number of queries.")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    version = models.PositiveIntegerField(default=1, db_default=1, editable=False)
    follows = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="followed_by",
        help_text="Previous version.",
    )
    origin = models.CharField(
        max_length=12,
        choices=DatasetOrigin.choices,
        default=DatasetOrigin.SENT,
        db_default=DatasetOrigin.SENT.value,
        editable=False,
    )
    origin_detail = models.CharField(max_length=200, blank=True, default="", db_default="", editable=False)
    archived_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.size:,} queries)"

    @property
    def file_name(self) -> str:
        """Of its rows as a file, without the ending of a format."""
        return f"{slugify(self.name) or 'dataset'}-v{self.version}"


class DatasetRow(models.Model):
    """One query of a dataset with what counts as success."""

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="rows")
    index = models.PositiveIntegerField()
    query = models.TextField()
    expected_outcome = models.JSONField(default=dict)
    metadata = models.JSONField(default=dict, blank=True)

    objects = ScopedManager("dataset__organization")

    class Meta:
        ordering = ["index"]
        constraints = [models.UniqueConstraint(fields=["dataset", "index"], name="dataset_rows_in_order")]

    def __str__(self) -> str:
        return self.query[:80]


class TrajectoryRecord(models.Model):
    """One rollout, kept as it ended. Append-only; partitioned by the month in which its job was created.

    The id is derived from (job, arm, line, iteration, scenario, rollout), so that the same rollout can't be kept
    twice. ``month`` is constant for a job, which lets the primary key of the partitioned table be (month, id).
    Advantages are in the group's row: they are known only once the group is complete.
    """

    id = models.UUIDField(primary_key=True, editable=False)
    month = models.DateField()
    organization_id = models.UUIDField()
    agent_id = models.UUIDField()
    job_id = models.UUIDField()
    purpose = models.CharField(max_length=12)  # "training" | "evaluation"
    arm = models.CharField(max_length=10, blank=True)  # "" | "baseline" | "trained"
    line = models.CharField(max_length=30, blank=True)  # evaluation line: "held_out", "harder_numbers" …
    iteration = models.IntegerField()
    scenario = models.IntegerField()
    rollout = models.IntegerField()
    query = models.TextField()
    success = models.BooleanField()
    outcome = models.FloatField()
    reward = models.FloatField(null=True)
    # The reward before its group was ranked, if a reward ranks groups; null elsewhere.
    reward_before_ranking = models.FloatField(null=True)
    n_steps = models.SmallIntegerField()
    truncated = models.BooleanField(default=False)
    error = models.TextField(blank=True)
    tokens = models.IntegerField(default=0)
    cost_micros = models.BigIntegerField(default=0)
    duration_ms = models.FloatField()
    policy_version = models.CharField(max_length=60, blank=True)
    model = models.CharField(max_length=200, blank=True)
    components = models.JSONField(default=dict)
    evidence = models.JSONField(default=dict)
    steps = SealedJSONField(default=list)
    created_at = models.DateTimeField()

    objects = ScopedManager("organization_id", needs="data.view")

    class Meta:
        managed = False  # made by SQL in the migration: Django can't declare partitions
        db_table = "experiences_trajectory"
        ordering = ["-created_at", "-id"]
        verbose_name = "trajectory"
        verbose_name_plural = "trajectories"

    def __str__(self) -> str:
        return f"iteration {self.iteration}, query {self.scenario}, rollout {self.rollout}"


tables.register("trajectories")(
    EncryptedTable("experiences_trajectory", {"month": "date", "id": "uuid"}, {"steps": JSON})
)


class GroupRecord(models.Model):
    """G trajectories of one scenario in one iteration, and what the algorithm made of them. One narrow row."""

    id = models.BigAutoField(primary_key=True)
    job_id = models.UUIDField()
    organization_id = models.UUIDField()
    iteration = models.IntegerField()
    scenario = models.IntegerField()
    query = models.CharField(max_length=200)
    has_signal = models.BooleanField()
    success = ArrayField(models.BooleanField())
    rewards = ArrayField(models.FloatField(null=True))
    normalized_rewards = ArrayField(models.FloatField())
    advantages = ArrayField(models.FloatField())
    step_advantages: Any = models.JSONField()

    objects = ScopedManager("organization_id", needs="data.view")

    class Meta:
        verbose_name = "trajectory group"
        constraints = [
            models.UniqueConstraint(fields=["job_id", "iteration", "scenario"], name="one_group_per_scenario")
        ]

    def __str__(self) -> str:
        return f"iteration {self.iteration}, query {self.scenario}"


class QueryRecord(models.Model):
    """A query of a job's rollouts, once for all rollouts with this query at a place. Triggers of the table of
    trajectories keep the row as long as a trajectory has this query. The search reads these rows in their place."""

    pk = models.CompositePrimaryKey("job_id", "iteration", "scenario", "digest")
    month = models.DateField()
    organization_id = models.UUIDField()
    job_id = models.UUIDField()
    iteration = models.IntegerField()
    scenario = models.IntegerField()
    digest = models.BigIntegerField()  # hashtextextended(query, 0)
    query = models.TextField()

    objects = ScopedManager("organization_id", needs="data.view")

    class Meta:
        db_table = "experiences_query"
        verbose_name = "query of trajectories"
        verbose_name_plural = "queries of trajectories"
        indexes = [
            GinIndex(
                OpClass(Upper("query"), "gin_trgm_ops"), name="experiences_query_by_text", gin_pending_list_limit=256
            )
        ]

    def __str__(self) -> str:
        return self.query[:80]
