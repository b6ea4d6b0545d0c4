"""Suites, their immutable versions, and runs of them."""

from __future__ import annotations

from functools import cached_property

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.models import Scoped, ScopedManager
from evaluation.serving.models.releases import Release
from evaluation.serving.suite_spec import SuiteSpec
from experiences.models import Agent


class SuiteKind(models.TextChoices):
    BENCHMARK = "benchmark", "Benchmark"
    SAFETY = "safety", "Safety"


class Suite(Scoped):
    """A named suite. Its versions hold its queries."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.SlugField(max_length=60)
    kind = models.CharField(max_length=10, choices=SuiteKind.choices, default=SuiteKind.BENCHMARK)
    description = models.CharField(max_length=500, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["organization", "name"], name="suite_name_per_organization")]

    def __str__(self) -> str:
        return self.name


class SuiteVersion(models.Model):
    """The queries of a suite and their settings (``serving.suites.spec``). The database refuses to change a version."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    digest = models.CharField(max_length=64, editable=False)
    spec = models.JSONField(editable=False)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ScopedManager("suite__organization")

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["suite", "number"], name="suite_version_number")]

    def __str__(self) -> str:
        return f"{self.suite} version {self.number}"

    @cached_property
    def parsed(self) -> SuiteSpec:
        return SuiteSpec.of(self.spec)


class SuiteRun(Scoped):
    """One run of a version: of a ``release``, or of the agent as it stood, whose ``bundle`` is then kept here.

    ``digest`` names what was played: a release has the results of all runs of its digest. ``score`` with ``low`` and
    ``high`` is the share of successes of the judged queries with its 95 % interval, and ``passed`` whether the score
    reached the threshold; all null until it is done, and where nothing could be judged.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="suite_run")
    version = models.ForeignKey(SuiteVersion, on_delete=models.CASCADE, related_name="runs")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="suite_runs")
    release = models.ForeignKey(Release, null=True, blank=True, on_delete=models.CASCADE, related_name="suite_runs")
    digest = models.CharField(max_length=64, editable=False)
    bundle = models.JSONField(default=dict, editable=False)
    judge_model = models.CharField(
        max_length=120, blank=True, help_text="Model for cases that rules can't decide; empty: no judge."
    )
    done = models.JSONField(default=list, editable=False)
    report = models.JSONField(default=dict, editable=False)
    score = models.FloatField(null=True, editable=False)
    low = models.FloatField(null=True, editable=False)
    high = models.FloatField(null=True, editable=False)
    passed = models.BooleanField(null=True, editable=False)
    cost_micros = models.BigIntegerField(default=0, editable=False)
    tokens = models.BigIntegerField(default=0, editable=False)

    class Meta:
        ordering = ["-job__created_at"]
        indexes = [models.Index(fields=["agent", "digest"], name="suite_runs_of_what_was_played")]

    @property
    def subject(self) -> str:
        """The measured object, in words."""
        return f"{self.agent}, as it stood" if self.release is None else str(self.release)

    @property
    def judged(self) -> int | None:
        """Queries that were judged; None before the run has a report."""
        return self.report.get("n")

    @property
    def asked(self) -> int | None:
        """Queries that were asked, judged or not; None before the run has a report."""
        return self.report["n"] + self.report["untold"] if self.report else None

    def __str__(self) -> str:
        return f"{self.version} · {self.subject}"


class SuiteResult(models.Model):
    """Results of all samples of one query. ``successes`` is null for a sample that could not be judged. ``answer`` and
    ``why`` are of the most informative sample: the first that failed, else the first."""

    run = models.ForeignKey(SuiteRun, on_delete=models.CASCADE, related_name="results")
    part = models.PositiveSmallIntegerField()
    category = models.CharField(max_length=24)
    scenario = models.PositiveIntegerField()
    query = models.TextField()
    answer = models.TextField(blank=True)
    why = models.TextField(blank=True)
    successes = ArrayField(models.BooleanField(null=True))
    cost_micros = models.BigIntegerField(default=0)
    tokens = models.BigIntegerField(default=0)
    duration_ms = models.FloatField(default=0.0)

    objects = ScopedManager("run__organization")

    class Meta:
        ordering = ["part", "scenario"]
        constraints = [models.UniqueConstraint(fields=["run", "part", "scenario"], name="suite_result_per_query")]

    def __str__(self) -> str:
        return f"{self.category} {self.scenario}"

    @property
    def judged(self) -> list[bool]:
        return [one for one in self.successes if one is not None]

    @property
    def failed(self) -> bool:
        return False in self.successes


def line_of(part: int, category: str) -> str:
    """The test-set name of a part's trajectories."""
    return f"{part} {category}"[:30]
