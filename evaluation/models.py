"""Evaluations. One compares a checkpoint with a baseline on the same queries and seeds."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.models import Scoped, ScopedManager
from experiences.models import Agent
from training.models import PolicyCheckpoint, TrainingRun


class Split(models.TextChoices):
    HELD_OUT = "held_out", "Held-out queries"
    SELECTION = "selection", "Selection queries"
    GIVEN = "given", "Queries given with the request"


class Against(models.TextChoices):
    """Context of the baseline arm. An action policy has none: its baseline is the untrained policy."""

    BEGAN = "began", "The context at the start of the run"
    NOTHING = "nothing", "No context: neither lessons nor playbook"


class EvaluationRun(Scoped):
    """A comparison of two arms: ``trained`` (the checkpoint) and ``baseline`` (the policy before the run, or one
    without context)."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="evaluation_run")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="evaluations")
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="evaluations")
    checkpoint = models.ForeignKey(PolicyCheckpoint, on_delete=models.CASCADE, related_name="evaluations")
    sha256 = models.CharField(
        max_length=64,
        blank=True,
        editable=False,
        help_text="SHA-256 of the measured checkpoint; the result is valid for these bytes only.",
    )
    # Fingerprints of model, tools and prompt that were measured (training/services/starting_points.py).
    acts_by = models.JSONField(default=dict, blank=True, editable=False)
    split = models.CharField(max_length=12, choices=Split.choices, default=Split.HELD_OUT)
    against = models.CharField(max_length=8, choices=Against.choices, default=Against.BEGAN)
    lines = ArrayField(
        models.CharField(max_length=30),
        default=list,
        help_text="Names of the reported test sets; the first one decides.",
    )
    queries = models.JSONField(null=True, blank=True, help_text="Rows given with the request.")
    samples = models.PositiveSmallIntegerField(help_text="Rollouts of each query and arm.")
    temperature = models.FloatField(default=0.0)
    seed = models.BigIntegerField()
    final = models.BooleanField(default=False, help_text="Requested at the end of its run: unique per checkpoint.")
    done = models.JSONField(default=list, blank=True, help_text="Finished parts (arm, line).")
    report = models.JSONField(default=dict, blank=True)
    cost_micros = models.BigIntegerField(default=0)
    tokens = models.BigIntegerField(default=0)

    class Meta:
        ordering = ["-job__created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["checkpoint", "split"], condition=models.Q(final=True), name="one_final_evaluation"
            )
        ]

    @property
    def baseline(self) -> str:
        """The baseline arm, in words."""
        if self.against == Against.NOTHING:
            return "an agent without context"
        return self.run.baseline

    def __str__(self) -> str:
        return f"{self.get_split_display()} · {self.checkpoint}"


class EvaluationResult(models.Model):
    """Results of k samples of one query, per arm and test set."""

    evaluation = models.ForeignKey(EvaluationRun, on_delete=models.CASCADE, related_name="results")
    arm = models.CharField(max_length=10)
    line = models.CharField(max_length=30)
    scenario = models.PositiveIntegerField()
    query = models.TextField()
    outcomes = ArrayField(models.FloatField())
    successes = ArrayField(models.BooleanField())
    rewards = ArrayField(models.FloatField())
    steps = ArrayField(models.PositiveSmallIntegerField())
    tool_calls = ArrayField(models.PositiveSmallIntegerField())
    tool_errors = ArrayField(models.PositiveSmallIntegerField())
    cost_micros = models.BigIntegerField(default=0)
    duration_ms = models.FloatField(default=0.0)

    objects = ScopedManager("evaluation__organization")

    class Meta:
        ordering = ["line", "scenario", "arm"]
        constraints = [
            models.UniqueConstraint(fields=["evaluation", "arm", "line", "scenario"], name="one_result_per_query")
        ]

    def __str__(self) -> str:
        return f"{self.line} {self.scenario} {self.arm}"


class HeldOutUse(Scoped):
    """One use of a held-out set. Uses are counted, because each further one makes a result less surprising."""

    fingerprint = models.CharField(max_length=64, db_index=True, help_text="SHA-256 of the held-out queries.")
    evaluation = models.OneToOneField(EvaluationRun, on_delete=models.CASCADE, related_name="held_out_use")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "evaluation_heldoutlook"  # the model's former name
        ordering = ["-at"]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M} {self.evaluation}"
