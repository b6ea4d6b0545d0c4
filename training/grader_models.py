"""Samples of graded rollouts, and what people say of each."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.models import Scoped, ScopedManager


class GraderSample(Scoped):
    """A random sample of the rollouts of a job that a scorer graded. ``seed`` draws it again from the same rollouts."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="+")
    run = models.ForeignKey("training.TrainingRun", on_delete=models.CASCADE, related_name="+")
    scorer = models.CharField(max_length=60)
    data_digest = models.CharField(max_length=64, editable=False, help_text="SHA-256 of the data that was graded.")
    seed = models.BigIntegerField(editable=False)
    population = models.PositiveIntegerField(help_text="Graded rollouts of the job from which it was drawn.")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["job", "scorer"], name="one_sample_per_job_and_scorer")]
        indexes = [models.Index(fields=["organization", "data_digest"], name="samples_by_data")]

    def __str__(self) -> str:
        return f"{self.scorer}, {self.created_at:%Y-%m-%d}"


class GraderJudgement(models.Model):
    """A rollout of a sample. ``graded``: the scorer's verdict, unseen until ``right`` is said. ``digest``: SHA-256 of
    query, expected outcome, answer, scorer and verdict; a judgement is of exactly these."""

    sample = models.ForeignKey(GraderSample, on_delete=models.CASCADE, related_name="judgements")
    place = models.PositiveSmallIntegerField()
    trajectory_id = models.UUIDField(editable=False)
    digest = models.CharField(max_length=64, editable=False)
    graded = models.BooleanField(editable=False)
    right = models.BooleanField(null=True)
    skipped = models.BooleanField(default=False)
    judged_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    judged_at = models.DateTimeField(null=True)

    objects = ScopedManager("sample__organization")

    class Meta:
        ordering = ["place"]
        constraints = [
            models.UniqueConstraint(fields=["sample", "place"], name="one_judgement_per_place"),
            models.UniqueConstraint(fields=["sample", "trajectory_id"], name="one_judgement_per_rollout"),
        ]

    def __str__(self) -> str:
        return f"{self.place + 1} of {self.sample}"
