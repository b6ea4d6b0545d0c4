"""Serializers of a job's epochs and its manifest."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers


class EpochToolOut(serializers.Serializer[Any]):
    tool = serializers.CharField(help_text='"model" is what the model said itself.')
    calls = serializers.IntegerField()
    tokens = serializers.IntegerField()
    latency_ms = serializers.FloatField(allow_null=True, help_text="Mean of a call.")
    cost_usd = serializers.FloatField()


class QuestionsOut(serializers.Serializer[Any]):
    stage = serializers.CharField()
    asked = serializers.IntegerField()
    refused = serializers.IntegerField(help_text="Answers that could not be used.")
    repaired = serializers.IntegerField(help_text="Asked once more, since the first answer could not be used.")
    calls = serializers.IntegerField()
    tokens = serializers.IntegerField()
    cost_usd = serializers.FloatField()
    latency_ms = serializers.FloatField(help_text="Mean of a question.")
    own_ms = serializers.FloatField(help_text="Mean time that was spent on our side of a question.")
    models = serializers.ListField(child=serializers.CharField(), help_text="That were asked.")
    reasons = serializers.DictField(child=serializers.IntegerField(), help_text="Why answers could not be used.")


class ProposalOut(serializers.Serializer[Any]):
    iteration = serializers.IntegerField()
    op = serializers.CharField(help_text="ADD, UPDATE, DELETE, MERGE, NONE or EVICT.")
    taken = serializers.BooleanField()
    why = serializers.CharField(allow_blank=True)
    handle = serializers.CharField(allow_blank=True)
    text = serializers.CharField(allow_blank=True)


class SearchStepOut(serializers.Serializer[Any]):
    iteration = serializers.IntegerField()
    kept = serializers.BooleanField(help_text="Else what was learned in it was given up.")


class WhereOut(serializers.Serializer[Any]):
    """The queries in which one lesson holds: those that receive it, or those with the likeliest word. Effects are of
    the reward."""

    share = serializers.FloatField(help_text="Of the training queries.")
    effect = serializers.FloatField(help_text="On these, on average.")
    error = serializers.FloatField(help_text="Standard error of the effect on one of these.")
    others = serializers.FloatField(required=False, help_text="Effect on the others.")
    terms = serializers.ListField(
        child=serializers.IntegerField(), required=False,
        help_text="CRC-32 hashes of the word that these queries have in common; absent where it holds everywhere.",
    )  # fmt: skip
    kind = serializers.CharField(required=False, help_text="Label of these queries, where they were sorted by kind.")


@extend_schema_serializer(deprecate_fields=["looks", "most_looks"])
class GateOut(serializers.Serializer[Any]):
    iteration = serializers.IntegerField()
    accepted = serializers.BooleanField(help_text="At the end of a run: the candidate is the context from now on.")
    final = serializers.BooleanField(
        required=False, help_text="Whether this is the end of a run; else a step of the search, which ships nothing."
    )
    kept = serializers.BooleanField(required=False, help_text="The search goes on with what it learned.")
    steps = SearchStepOut(
        many=True, required=False, help_text="Algorithm tfgrpo: the steps of the search in this epoch."
    )
    why = serializers.CharField()
    candidate = serializers.ListField(child=serializers.CharField(), help_text="Handles of the candidate.")
    current = serializers.ListField(
        child=serializers.CharField(), help_text="Handles of the context until then; not final: that the search kept."
    )
    rolled_back = serializers.ListField(child=serializers.CharField())
    tokens = serializers.IntegerField(help_text="About how many the candidate adds to a call.")
    lessons_each = serializers.FloatField(
        required=False, allow_null=True, help_text="Lessons in the context of a query of training, on average."
    )
    where = serializers.DictField(
        child=WhereOut(),
        required=False,
        help_text="Where each lesson of the candidate holds: the share of queries and effects, by handle.",
    )
    n_queries = serializers.IntegerField()
    samples = serializers.IntegerField(help_text="Of each query and side.")
    analyses = serializers.IntegerField(
        required=False, source="looks", help_text="Taken until it was decided; 0: there was nothing new."
    )
    most_analyses = serializers.IntegerField(required=False, source="most_looks", help_text="As many are planned.")
    looks = serializers.IntegerField(required=False, help_text="The former name of `analyses`.")
    most_looks = serializers.IntegerField(required=False, help_text="The former name of `most_analyses`.")
    candidate_rate = serializers.FloatField()
    current_rate = serializers.FloatField()
    difference = serializers.FloatField(help_text="Candidate less current, with its 95 % interval.")
    low = serializers.FloatField()
    high = serializers.FloatField()
    gain = serializers.FloatField(help_text="Candidate less what the run began with.")
    p_value = serializers.FloatField(help_text="Of the gain, one-sided, over all interim analyses.")
    needs = serializers.IntegerField(
        required=False,
        allow_null=True,
        help_text="Of a refused candidate that did better: with so many selection queries a true gain of that size is "
        "found in four of five runs; null: with more than 200.",
    )


class EpochOut(serializers.Serializer[Any]):
    """One epoch. Means are over its rollouts; null where nothing was measured."""

    epoch = serializers.IntegerField()
    iterations = serializers.IntegerField()
    started_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    rollouts = serializers.IntegerField()
    success_rate = serializers.FloatField(allow_null=True)
    reward_mean = serializers.FloatField(allow_null=True)
    steps_mean = serializers.FloatField(allow_null=True)
    tokens = serializers.IntegerField()
    tokens_mean = serializers.FloatField(allow_null=True)
    cost_usd = serializers.FloatField()
    latency_ms = serializers.FloatField(allow_null=True)
    tools = EpochToolOut(many=True)
    reflected = serializers.DictField(
        child=serializers.IntegerField(), help_text="Groups, those with spread, compared, unread; drafts, operations."
    )
    questions = QuestionsOut(many=True)
    taken = serializers.IntegerField(help_text="Proposals that changed the library.")
    refused = serializers.IntegerField()
    refusals = serializers.DictField(child=serializers.IntegerField(), help_text="By reason.")
    changes = ProposalOut(many=True)
    gate = GateOut(allow_null=True)


class PerEpochOut(serializers.Serializer[Any]):
    job_id = serializers.UUIDField()
    status = serializers.CharField()
    complete = serializers.BooleanField()
    epochs = serializers.ListField(child=serializers.DictField())
    averages = serializers.DictField(child=serializers.FloatField(allow_null=True))


class ManifestOut(serializers.Serializer[Any]):
    manifest_version = serializers.IntegerField()
    made_at = serializers.DateTimeField()
    run = serializers.DictField()
    agent = serializers.DictField()
    config = serializers.DictField()
    data = serializers.DictField()  # type: ignore[assignment]
    epochs = serializers.ListField(child=serializers.DictField())
    per_epoch_averages = serializers.DictField()
    experiences = serializers.ListField(child=serializers.DictField())
    scores = serializers.DictField()
    gates = serializers.ListField(child=serializers.DictField())
    guard_rails = serializers.DictField()
    versions = serializers.DictField(child=serializers.CharField())
