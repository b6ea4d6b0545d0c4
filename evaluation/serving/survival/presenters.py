"""Measurements of lessons on other models as REST and pages show them."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django_filters import rest_framework as filters
from rest_framework import serializers

from agentcore_site.jobs.models import Status
from agentcore_site.lib.money import dollars
from agentcore_site.rest.shapes import Shape
from evaluation.serving.models import SurvivalRun
from evaluation.serving.releases.selectors import bundle_of
from evaluation.serving.survival.drop_outs import OUTCOMES
from experiences.lessons.filters import OfAgent

SORTS = {
    "outcome": lambda row: (OUTCOMES.index(row["outcome"]), -row["effect"]),
    "effect": lambda row: -row["effect"],
    "pairs": lambda row: -row["pairs"],
    "lesson": lambda row: row["text"].lower(),
}
TONES = {"survives": "good", "harms": "bad", "neutral": ""}


class SurvivalLessonOut(serializers.Serializer[Any]):
    handle = serializers.CharField()
    text = serializers.CharField(help_text="As the release has it.")
    outcome = serializers.ChoiceField(
        choices=OUTCOMES, help_text="survives: the interval lies above 0; harms: below 0; neutral: neither."
    )
    words = serializers.CharField(help_text="The outcome; of a neutral lesson whether enough was seen.")
    effect = serializers.FloatField(help_text="On the reward.")
    low = serializers.FloatField(allow_null=True, help_text="Of the interval for all lessons at once, with 95 %.")
    high = serializers.FloatField(allow_null=True)
    pairs = serializers.IntegerField(help_text="Pairs of rollouts that measured the lesson.")


class SurvivalRow(Shape):
    id = serializers.UUIDField(source="job_id")
    agent_id = serializers.UUIDField()
    agent = serializers.CharField(source="agent.slug", help_text="The agent's slug.")
    release_id = serializers.UUIDField()
    release = serializers.IntegerField(source="release.number", help_text="The release's number.")
    digest = serializers.CharField(help_text="SHA-256 of the release.")
    endpoint_id = serializers.UUIDField()
    endpoint = serializers.CharField(source="endpoint.name")
    model = serializers.CharField(help_text="The other model.")
    training_job_id = serializers.UUIDField(source="run_id", help_text="The job whose queries were played.")
    status = serializers.ChoiceField(choices=Status.choices, source="job.status")
    status_reason = serializers.CharField(source="job.status_reason")
    progress_percent = serializers.FloatField(source="job.percent")
    pairs = serializers.IntegerField(help_text="Planned pairs of plays.")
    played = serializers.IntegerField(help_text="Pairs that were played.")
    max_budget_usd = serializers.FloatField()
    cost_usd = serializers.FloatField(help_text="By the ledger; 0 until it is done.")
    created_at = serializers.DateTimeField(source="job.created_at")

    computed = {
        "max_budget_usd": lambda row: dollars(row.limit_micros),
        "cost_usd": lambda row: dollars(row.cost_micros),
    }


class SurvivalOut(SurvivalRow):
    error = serializers.CharField(source="job.error", allow_blank=True)
    lessons = SurvivalLessonOut(many=True, help_text="Harmful ones first. Empty until it is done.")
    report = serializers.DictField(
        help_text="Verdict, method, plays and dollars, and the digests, models and endpoints. Empty until it is done."
    )

    computed = {
        **SurvivalRow.computed,
        "lessons": lambda row: lessons_of(row),
        "report": lambda row: {name: value for name, value in row.report.items() if name != "lessons"},
    }


def lessons_of(run: SurvivalRun, sort: str = "outcome") -> list[dict[str, Any]]:
    """The lessons of a report with their texts and tones, by a name of ``SORTS``; [] until there is a report."""
    if not run.report:
        return []
    texts = {lesson.handle: lesson.text for lesson in bundle_of(run.release).context.lessons}
    rows = [
        {**one, "text": texts.get(one["handle"], ""), "tone": TONES[one["outcome"]]} for one in run.report["lessons"]
    ]
    return sorted(rows, key=SORTS.get(sort, SORTS["outcome"]))


class SurvivalFilters(OfAgent):
    release = filters.UUIDFilter(field_name="release_id")
    status = filters.ChoiceFilter(field_name="job__status", choices=Status.choices)
    search = filters.CharFilter(method="searched", help_text="Text in the model's name.")

    class Meta:
        model = SurvivalRun
        fields: list[str] = []

    def searched(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(model__icontains=value)
