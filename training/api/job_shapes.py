"""REST: shapes and filters of training jobs."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers

from agentcore_site.jobs.models import Status
from agentcore_site.rest.parsing import Strict
from agentcore_site.rest.shapes import Shape
from experiences.lessons.filters import OfAgent
from experiences.trajectories.failures import KINDS
from training.api.datasets import RowsField
from training.config.presets import DEFAULT_PRESET
from training.models import TrainingRun
from training.presenters.shapes import PRIORITIES
from training.selectors.runs import called, described
from training.services.notes import (
    NOTE,
    TAG,
    TAGS,
)

MAX_GROUP_ITERATIONS = 100
BIGGEST = 2**31 - 1


class PlanIn(Strict):
    agent = serializers.CharField(max_length=100, help_text="Id or slug.")
    dataset_id = serializers.UUIDField(required=False, allow_null=True)
    environment_options = serializers.DictField(required=False, allow_null=True)
    preset = serializers.CharField(max_length=40, default=DEFAULT_PRESET, help_text="See `/api/v1/presets`.")
    config = serializers.DictField(
        required=False, help_text="What differs from the preset; see `/api/v1/config-schema`."
    )


class EstimateIn(PlanIn):
    n_queries = serializers.IntegerField(required=False, min_value=1, max_value=BIGGEST)
    domain = serializers.CharField(
        max_length=60, required=False, allow_blank=True, help_text="What queries without a dataset are about."
    )


class JobIn(PlanIn):
    training_data = RowsField(required=False, help_text="Queries with the job, instead of a dataset or environment.")
    domain = serializers.CharField(
        max_length=60,
        required=False,
        allow_blank=True,
        help_text="What these queries are about; a dataset says it itself.",
    )
    environment = serializers.CharField(max_length=60, required=False, help_text="Default: the agent's own.")
    priority = serializers.ChoiceField(choices=[*PRIORITIES], default="normal")
    not_before = serializers.DateTimeField(required=False, allow_null=True, help_text="Waits in the queue until then.")
    title = serializers.CharField(max_length=200, required=False, allow_blank=True)


class GoOnIn(Strict):
    max_budget_usd = serializers.FloatField(help_text="The most that the next job may spend.")
    title = serializers.CharField(max_length=200, required=False, allow_blank=True)


class GoOnQuery(Strict):
    # No float: that would be "nan" too.
    amount_usd = serializers.DecimalField(
        max_digits=15,
        decimal_places=6,
        required=False,
        min_value=0,
        help_text="Default: the money that the job took.",
    )


class GainOut(serializers.Serializer[Any]):
    expected = serializers.FloatField(help_text="In units of reward for each query.")
    low = serializers.FloatField(help_text="95 % interval of the gain.")
    high = serializers.FloatField()


class OutlookOut(serializers.Serializer[Any]):
    """Expected gain of a further amount, by the estimates of lessons that the job stored."""

    can_go_on = serializers.BooleanField()
    reason = serializers.CharField(help_text="Why it can't go on; empty where it can.")
    amount_usd = serializers.FloatField()
    rollouts = serializers.IntegerField(allow_null=True, help_text="That the amount pays for, at the job's price.")
    lessons = serializers.IntegerField(help_text="Lessons that were still tried at its end.")
    gain = GainOut(allow_null=True, help_text="By better estimates of these lessons alone; null: not known.")
    text = serializers.CharField()


class SeriesQuery(Strict):
    after = serializers.IntegerField(min_value=0, max_value=BIGGEST, default=0, help_text="Iterations after this one.")


class SeriesOut(serializers.Serializer[Any]):
    iterations = serializers.ListField(child=serializers.DictField())
    selection = serializers.ListField(child=serializers.DictField(), help_text="Validations on the selection queries.")
    iteration = serializers.IntegerField()


class GroupsQuery(Strict):
    first = serializers.IntegerField(min_value=0, max_value=BIGGEST, required=False)
    last = serializers.IntegerField(min_value=0, max_value=BIGGEST, required=False)


class GroupOut(serializers.Serializer[Any]):
    iteration = serializers.IntegerField()
    has_signal = serializers.BooleanField()
    success = serializers.ListField(child=serializers.BooleanField())
    rewards = serializers.ListField(child=serializers.FloatField(allow_null=True))
    normalized_rewards = serializers.ListField(child=serializers.FloatField())
    advantages = serializers.ListField(child=serializers.FloatField())
    step_advantages = serializers.ListField(child=serializers.ListField(child=serializers.FloatField()))


class GroupRowOut(Shape):
    scenario = serializers.IntegerField()
    query = serializers.CharField()
    groups = GroupOut(many=True)

    computed = {"groups": lambda row: list(row["cells"].values())}


class GroupsOut(serializers.Serializer[Any]):
    first = serializers.IntegerField()
    last = serializers.IntegerField()
    queries = GroupRowOut(many=True)


class FailureOut(serializers.Serializer[Any]):
    reason = serializers.CharField(help_text="As the filter `reason` of trajectories takes it.")
    kind = serializers.ChoiceField(choices=[*KINDS])
    detail = serializers.CharField(help_text="What failed: an error's boundary, a tool; empty where nothing is named.")
    title = serializers.CharField(help_text="The reason in words.")
    n = serializers.IntegerField()
    share = serializers.FloatField(help_text="Of all rollouts of the job's training.")
    low = serializers.FloatField(source="interval.low", help_text="Of the share's 95 % interval.")
    high = serializers.FloatField(source="interval.high")
    first = serializers.IntegerField(help_text="The first iteration that has one.")
    last = serializers.IntegerField()
    example = serializers.UUIDField(allow_null=True, help_text="A trajectory of the latest part.")
    shares = serializers.ListField(
        child=serializers.FloatField(allow_null=True), help_text="By part of the job, in order; null: nothing was run."
    )
    trend = serializers.CharField(help_text="rarer, more often, or empty: no change is shown.")


class FailuresOut(serializers.Serializer[Any]):
    total = serializers.IntegerField(help_text="Rollouts of the job's training.")
    failed = serializers.IntegerField()
    reasons = FailureOut(many=True, help_text="The most frequent first.")


class DescriptionIn(Strict):
    note = serializers.CharField(
        max_length=NOTE, required=False, allow_blank=True, help_text="What people say of it; plain text."
    )
    tags = serializers.ListField(
        child=serializers.CharField(max_length=TAG, allow_blank=True),
        max_length=TAGS,
        required=False,
        help_text="The whole list.",
    )


class CommentIn(Strict):
    text = serializers.CharField(max_length=NOTE)


class CommentOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    author = serializers.CharField(allow_null=True, source="author.username", help_text="Null: the account is gone.")
    text = serializers.CharField()
    created_at = serializers.DateTimeField()
    edited_at = serializers.DateTimeField(allow_null=True, help_text="Null: it was never edited.")


class JobFilters(OfAgent):
    status = filters.MultipleChoiceFilter(field_name="job__status", choices=Status.choices, help_text="Repeatable.")
    search = filters.CharFilter(method="matching", help_text="Text in its title, note or the agent's name.")
    tag = filters.CharFilter(method="tagged", help_text="Carries this tag.")

    class Meta:
        model = TrainingRun
        fields: list[str] = []

    def matching(self, rows: QuerySet[TrainingRun], name: str, value: str) -> QuerySet[TrainingRun]:
        return rows.filter(called(value) | described(value))

    def tagged(self, rows: QuerySet[TrainingRun], name: str, value: str) -> QuerySet[TrainingRun]:
        return rows.filter(tags__contains=[value])


START = OpenApiExample(
    "Train on the agent's environment",
    {"agent": "tool-router", "preset": "recommended", "config": {"n_iterations": 300, "max_budget_usd": 5}},
    request_only=True,
)


WITH_DATA = OpenApiExample(
    "Train on queries of your own",
    {
        "agent": "tool-router",
        "training_data": [{"query": "What is 6 * 7?", "expected_outcome": {"answer": "42"}}],
        "config": {"n_iterations": 1000, "batch_size": 16, "n_trajectories_per_query": 8, "learning_rate": 0.0001},
    },
    request_only=True,
)
