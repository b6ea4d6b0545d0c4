"""Playbooks with their whole history, what is proposed for them, and the executions that teach them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from agentcore_site.encryption.columns import JSON, EncryptedTable, SealedJSONField, tables
from agentcore_site.ids import uuid7
from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.models import Scoped, ScopedManager
from experiences.models.agents import Agent, Philosophy


class Playbook(Scoped):
    """The context of one agent before each task: a pointer to its newest version, and the outcomes of its evolutions.

    ``version`` rises by one with each change, by a conditional update: of two writers one wins. ``context`` is that
    version as agents read it. ``next_section`` numbers items; a number is never given twice. ``pending`` counts the
    executions since evolution was last triggered.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.OneToOneField(Agent, on_delete=models.CASCADE, related_name="playbook")
    philosophy = models.CharField(max_length=20, choices=Philosophy.choices)
    version = models.PositiveIntegerField(default=1)
    next_section = models.PositiveIntegerField(default=1)
    context = models.TextField(blank=True, editable=False)
    section_count = models.PositiveSmallIntegerField(default=0)

    traces = models.PositiveBigIntegerField(default=0)
    pending = models.PositiveIntegerField(default=0)
    evolutions = models.PositiveIntegerField(default=0)
    successes = models.PositiveIntegerField(default=0)
    failures = models.PositiveIntegerField(default=0)
    deltas_generated = models.PositiveIntegerField(default=0)
    deltas_applied = models.PositiveIntegerField(default=0)
    confidence_sum = models.FloatField(default=0.0, editable=False)
    last_error = models.TextField(blank=True)
    last_evolution_at = models.DateTimeField(null=True, blank=True)

    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"Playbook of {self.agent}, version {self.version}"

    @property
    def average_confidence(self) -> float:
        """Of all changes that were ever proposed by evolution."""
        return round(self.confidence_sum / self.deltas_generated, 4) if self.deltas_generated else 0.0


class PlaybookVersion(models.Model):
    """All items of one version, whole. Never updated (trigger); goes only with the playbook, or by an erasure."""

    playbook = models.ForeignKey(Playbook, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    sections: Any = models.JSONField(default=list)
    action = models.CharField(max_length=20)  # created, edited, adopted, evolved, reviewed, reverted, rolled back …
    note = models.CharField(max_length=300, blank=True)
    by = models.CharField(max_length=150, help_text="A person, or an evolution.")
    job = models.ForeignKey(Job, null=True, on_delete=models.SET_NULL, related_name="+")
    at = models.DateTimeField(default=timezone.now)

    objects = ScopedManager("playbook__organization")

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["playbook", "number"], name="one_row_per_playbook_version")]

    def __str__(self) -> str:
        return f"version {self.number}"


class PlaybookSection(models.Model):
    """An item's counts over all its versions. The row stays when the item goes, and so does its name."""

    playbook = models.ForeignKey(Playbook, on_delete=models.CASCADE, related_name="counts")
    handle = models.CharField(max_length=16)
    usage = models.PositiveBigIntegerField(default=0)
    helpful = models.PositiveBigIntegerField(default=0)
    harmful = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ScopedManager("playbook__organization")

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["playbook", "handle"], name="one_name_per_playbook_section")]

    def __str__(self) -> str:
        return self.handle


class PlaybookChange(models.Model):
    """Change of one item in one version, with its provenance. Never updated (trigger).

    ``reason`` says why an item went that no delta named, with its figures. ``delta`` and ``experience`` are plain ids:
    a playbook outlives the rows that it refers to.
    """

    playbook = models.ForeignKey(Playbook, on_delete=models.CASCADE, related_name="changes")
    version = models.PositiveIntegerField()
    handle = models.CharField(max_length=16)
    action = models.CharField(max_length=20)  # added, updated, removed, merged, pruned, reverted, restored, erased
    before: Any = models.JSONField(null=True)
    after: Any = models.JSONField(null=True)
    reason = models.CharField(max_length=300, blank=True, db_default="")
    delta = models.UUIDField(null=True)
    experience = models.UUIDField(null=True)
    by = models.CharField(max_length=150)
    job = models.ForeignKey(Job, null=True, on_delete=models.SET_NULL, related_name="+")
    at = models.DateTimeField(default=timezone.now)

    objects = ScopedManager("playbook__organization")

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["playbook", "handle", "version"], name="playbook_changes_by_item")]

    def __str__(self) -> str:
        return f"{self.handle} {self.action} in version {self.version}"


class DeltaType(models.TextChoices):
    ADD = "add", "Add"
    UPDATE = "update", "Update"
    REMOVE = "remove", "Remove"


class DeltaState(models.TextChoices):
    PROPOSED = "proposed", "Proposed"
    APPLIED = "applied", "Applied"
    MERGED = "merged", "Merged with an equivalent item"
    REVIEW = "review", "Waits for a review"
    QUARANTINED = "quarantined", "Quarantined"
    REJECTED = "rejected", "Rejected"


class ContextDelta(Scoped):
    """One proposed change of a playbook. Once applied or merged it never changes again (trigger).

    ``proposed`` is the text as it came where a person edited it before it was applied.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    playbook = models.ForeignKey(Playbook, on_delete=models.CASCADE, related_name="deltas")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="deltas")
    job = models.ForeignKey(Job, null=True, on_delete=models.SET_NULL, related_name="deltas")
    type = models.CharField(max_length=6, choices=DeltaType.choices)
    category = models.CharField(max_length=12, blank=True)
    content = models.CharField(max_length=1000, blank=True)
    proposed = models.CharField(max_length=1000, blank=True)
    target = models.CharField(max_length=40, blank=True, help_text="Item that is updated or removed.")
    confidence = models.FloatField()
    rationale = models.TextField(blank=True)
    state = models.CharField(max_length=12, choices=DeltaState.choices, default=DeltaState.PROPOSED)
    reason = models.CharField(max_length=300, blank=True)
    taught_by = ArrayField(models.UUIDField(), default=list, help_text="Executions from which the change was learned.")
    experience = models.UUIDField(null=True, editable=False)
    section = models.CharField(max_length=16, blank=True, help_text="Item that the change added or updated.")
    version = models.PositiveIntegerField(null=True, help_text="First version with the change.")
    by = models.CharField(max_length=150, help_text="A person, or an evolution.")
    reviewed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    reviewed_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["playbook", "-created_at"], name="deltas_by_playbook"),
            models.Index(
                fields=["organization", "state"],
                name="deltas_to_review",
                condition=Q(state__in=["proposed", "review", "quarantined"]),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="delta_confidence_is_a_share", condition=Q(confidence__gte=0) & Q(confidence__lte=1)
            ),
            models.CheckConstraint(
                name="delta_has_its_target", condition=Q(type="add") | ~Q(target="") | ~Q(state="applied")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_type_display()} {self.target or self.category}: {self.content[:60]}"


class ExecutionTrace(Scoped):
    """One execution of an agent in production, without personal data. Append-only (trigger).

    ``leave_out_rate`` and ``left_out`` are those of its context, where the service reported its id and items
    were left out: at random, or (rate 0) by the release that was served; else null. ``used`` are the items that the
    agent says it used; null: it says nothing.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="traces")
    task_id = models.CharField(max_length=100, blank=True)
    inputs: Any = SealedJSONField(default=dict)
    outputs: Any = SealedJSONField(default=dict)
    duration_ms = models.FloatField()
    success = models.BooleanField()
    context_version = models.PositiveIntegerField(null=True, help_text="Version of the playbook in the context.")
    leave_out_rate = models.FloatField(null=True, help_text="Probability with which each item was left out.")
    left_out = ArrayField(models.CharField(max_length=16), null=True, help_text="Items left out of the context.")
    used = ArrayField(models.CharField(max_length=16), null=True, help_text="Items that the answer used.")
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    objects: ClassVar[ScopedManager] = ScopedManager(needs="data.view")

    class Meta:
        ordering = ["-recorded_at", "-id"]
        indexes = [
            models.Index(fields=["agent", "-recorded_at", "-id"], name="traces_by_agent"),
            models.Index(fields=["recorded_at"], name="traces_by_age"),
        ]
        constraints = [models.CheckConstraint(name="trace_took_time", condition=Q(duration_ms__gt=0))]

    def __str__(self) -> str:
        return f"{'success' if self.success else 'failure'} after {self.duration_ms:,.0f} ms"


tables.register("executions")(
    EncryptedTable("experiences_executiontrace", {"id": "uuid"}, {"inputs": JSON, "outputs": JSON})
)


class Evolution(Scoped):
    """The subject of one evolution; ``job`` is its execution.

    The executions are chosen once, before the model is asked, so that a job that is taken up again asks the same.
    ``tries`` counts its failures: a retry asks again.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="evolution")
    playbook = models.ForeignKey(Playbook, on_delete=models.CASCADE, related_name="history")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="evolutions")
    trigger = models.CharField(max_length=10, default="request")  # traces, request
    tries = models.PositiveSmallIntegerField(default=0)
    trace_ids = ArrayField(models.UUIDField(), default=list)
    metrics = models.JSONField(default=dict)
    version_before = models.PositiveIntegerField(null=True)
    version_after = models.PositiveIntegerField(null=True)
    outcome = models.JSONField(default=dict, help_text="Number of deltas by final state.")
    cost_micros = models.BigIntegerField(default=0)
    tokens = models.PositiveBigIntegerField(default=0)
    settled_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-job__created_at"]

    def __str__(self) -> str:
        return f"Evolution of {self.agent} · {str(self.job_id)[-6:]}"
