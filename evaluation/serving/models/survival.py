"""Measurements of a release's lessons on another model."""

from __future__ import annotations

from django.db import models

from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.models import Scoped
from evaluation.serving.models.releases import Release
from experiences.models import Agent, ModelEndpoint
from training.models import TrainingRun


class SurvivalRun(Scoped):
    """Plays pairs of a ``release`` with lessons left out, on another ``model``; the queries are those of ``run``.

    ``digest`` is the release's. ``bundle`` is what is played: the release with the other model, as the endpoint was at
    the request. ``results`` has a row for each pair: scenario, number of the pair, both rewards (null: not graded).
    ``out_of_money``: the limit ended it before all ``pairs`` were played.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="survival_run")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="survival_runs")
    release = models.ForeignKey(Release, on_delete=models.CASCADE, related_name="survival_runs")
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="survival_runs")
    endpoint = models.ForeignKey(ModelEndpoint, on_delete=models.CASCADE, related_name="+")
    model = models.CharField(max_length=200)
    digest = models.CharField(max_length=64, editable=False)
    bundle = models.JSONField(editable=False)
    pairs = models.PositiveIntegerField(help_text="Planned pairs of plays.")
    limit_micros = models.BigIntegerField(help_text="Spending limit at the request, in micro-dollars.")
    seed = models.BigIntegerField()
    done = models.JSONField(default=list, editable=False)
    results = models.JSONField(default=list, editable=False)
    out_of_money = models.BooleanField(default=False, editable=False)
    report = models.JSONField(default=dict, editable=False)
    cost_micros = models.BigIntegerField(default=0, editable=False)
    tokens = models.BigIntegerField(default=0, editable=False)

    class Meta:
        ordering = ["-job__created_at"]
        indexes = [models.Index(fields=["release", "endpoint", "model"], name="survival_runs_of_a_model")]

    @property
    def played(self) -> int:
        """Pairs that were played."""
        return len(self.results)

    def __str__(self) -> str:
        return f"{self.release} on {self.model}"
