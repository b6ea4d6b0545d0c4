"""An agent's learning loop: its triggers, and the result of each turn."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.tenancy.models import Scoped, ScopedManager
from evaluation.serving.models.deployments import Deployment, DeploymentStrategy
from evaluation.serving.models.releases import Release
from evaluation.serving.models.suites import SuiteRun
from experiences.models import Agent
from training.models import TrainingRun


class LoopTrigger(models.TextChoices):
    TRACES = "traces", "Enough new traces"
    DAILY = "daily", "Daily"
    HAND = "hand", "By hand"
    DRIFT = "drift", "Production got worse"


class RowReview(models.TextChoices):
    """The rows that a person reviews before training."""

    FLAGGED = "flagged", "Flagged rows wait for a person"
    ALL = "all", "All rows wait for a person"
    NONE = "none", "None: flagged rows are left out"


class TurnState(models.TextChoices):
    COLLECTING = "collecting", "Collecting"
    REVIEWING = "reviewing", "Review"
    TRAINING = "training", "Training"
    GATING = "gating", "Gate"
    DEPLOYING = "deploying", "Deployment"
    DONE = "done", "Done"
    STOPPED = "stopped", "Stopped"


TURN_ENDED: Final = (TurnState.DONE, TurnState.STOPPED)


class LearningLoop(Scoped):
    """The settings of an agent's learning loop: triggers, person and budget.
    Automatic turns act as ``acts_as``, who switched the loop on at ``on_since``. ``after_traces``: number of new traces
    that begins a turn, with feedback if ``judged_only``; null: none does. Money is micro-dollars and a month UTC's.
    ``config``, ``environment_options`` and ``rule`` are the settings of jobs and deployments ({}: the defaults).
    ``drift`` is the last analysis of drift.
    """

    agent = models.OneToOneField(Agent, on_delete=models.CASCADE, primary_key=True, related_name="learning_loop")
    on = models.BooleanField(default=False)
    on_since = models.DateTimeField(null=True, editable=False)
    acts_as = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    after_traces = models.PositiveIntegerField(null=True, blank=True, default=5_000)
    judged_only = models.BooleanField(default=False)
    daily = models.BooleanField(default=False)
    on_drift = models.BooleanField(default=False)
    monthly_micros = models.PositiveBigIntegerField(default=50_000_000)
    least_rows = models.PositiveIntegerField(default=50)
    review = models.CharField(max_length=8, choices=RowReview.choices, default=RowReview.FLAGGED)
    preset = models.CharField(max_length=30, default="recommended")
    config: Any = models.JSONField(default=dict, blank=True)
    environment_options: Any = models.JSONField(default=dict, blank=True)
    strategy = models.CharField(max_length=10, choices=DeploymentStrategy.choices, default=DeploymentStrategy.CANARY)
    rule: Any = models.JSONField(default=dict, blank=True)
    drift: Any = models.JSONField(default=dict, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"learning loop of {self.agent}"


class LoopTurn(Scoped):
    """One turn: rows, job, release, deployment. It acts as ``created_by``.
    ``waits_for`` is the condition of its next step, ``reason`` that of its stop. ``gain`` is the held-out proof of its
    job, ``online`` the measured difference of its deployment by guardrail. ``cost_micros`` is the cost of its job and
    of its ``suite_runs``.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="loop_turns")
    number = models.PositiveIntegerField()
    trigger = models.CharField(max_length=8, choices=LoopTrigger.choices)
    state = models.CharField(max_length=10, choices=TurnState.choices, default=TurnState.COLLECTING)
    reached = models.CharField(max_length=10, choices=TurnState.choices, default=TurnState.COLLECTING)
    waits_for = models.CharField(max_length=300, blank=True)
    reason = models.CharField(max_length=300, blank=True)
    run = models.ForeignKey(TrainingRun, null=True, on_delete=models.SET_NULL, related_name="loop_turns")
    release = models.ForeignKey(Release, null=True, on_delete=models.SET_NULL, related_name="loop_turns")
    deployment = models.ForeignKey(Deployment, null=True, on_delete=models.SET_NULL, related_name="loop_turns")
    suite_runs = models.ManyToManyField(SuiteRun, related_name="loop_turns")
    rows_found = models.PositiveIntegerField(default=0)
    rows_flagged = models.PositiveIntegerField(default=0)
    gain: Any = models.JSONField(default=dict, editable=False)
    online: Any = models.JSONField(default=dict, editable=False)
    cost_micros = models.BigIntegerField(default=0)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["agent", "number"], name="turn_number_per_agent"),
            models.UniqueConstraint(
                fields=["agent"], condition=~models.Q(state__in=["done", "stopped"]), name="one_live_turn"
            ),
        ]

    def __str__(self) -> str:
        return f"turn {self.number} of {self.agent}"

    @property
    def live(self) -> bool:
        return self.state not in TURN_ENDED


class RowState(models.TextChoices):
    TAKEN = "taken", "Taken"
    WAITING = "waiting", "Waits for a person"
    APPROVED = "approved", "Approved"
    REJECTED = "rejected", "Left out"


LEARNED_FROM: Final = (RowState.TAKEN, RowState.APPROVED)


class RowSource(models.TextChoices):
    LIKED = "liked", "A liked answer"
    CORRECTED = "corrected", "A correction"


class LoopRow(models.Model):
    """A row that a turn may learn from. ``decided_by`` null: by rule, or not yet."""

    id = models.BigAutoField(primary_key=True)
    turn = models.ForeignKey(LoopTurn, on_delete=models.CASCADE, related_name="rows")
    trace_id = models.UUIDField()  # of a trace that may go while the row stays
    query = models.TextField()
    expected = models.TextField()
    source = models.CharField(max_length=9, choices=RowSource.choices)
    flags = ArrayField(models.CharField(max_length=200), default=list)
    state = models.CharField(max_length=8, choices=RowState.choices)
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

    objects = ScopedManager("turn__organization", needs="data.view")

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["turn", "trace_id"], name="one_row_per_trace")]
        indexes = [models.Index(fields=["turn", "state", "id"], name="loop_rows_by_state")]

    def __str__(self) -> str:
        return f"{self.query[:60]}"
