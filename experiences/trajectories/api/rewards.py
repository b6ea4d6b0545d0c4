"""REST: the rewards that can pay agents, and trying one before a job is paid for it."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.views import ScopedViewSet
from experiences.agents.api.environments import PluginOut, described
from experiences.rollouts.rewards import rewards
from experiences.rollouts.rewards.trial import reward_faults
from experiences.trajectories.services.rewards import MAX_TRIED, reward_try


class RewardIn(Strict):
    reward = serializers.CharField(max_length=100, help_text="Its name; GET /api/v1/rewards lists them.")
    options = serializers.DictField(required=False, help_text="Options by name.")


class RewardTryIn(RewardIn):
    job = serializers.UUIDField(required=False, help_text="A training or evaluation job.")
    agent = serializers.CharField(max_length=60, required=False, help_text="An agent, by id or slug; its training.")
    samples = serializers.ListField(
        child=serializers.JSONField(),
        required=False,
        max_length=MAX_TRIED,
        help_text="Trajectories of your own, as an export writes them: success or outcome, steps, evidence.",
    )
    limit = serializers.IntegerField(required=False, min_value=1, max_value=MAX_TRIED, default=MAX_TRIED)


class RewardErrorOut(serializers.Serializer[Any]):
    field = serializers.CharField()
    message = serializers.CharField()


class RewardCheckOut(serializers.Serializer[Any]):
    ok = serializers.BooleanField()
    messages = RewardErrorOut(many=True)


class RewardSummaryOut(serializers.Serializer[Any]):
    n = serializers.IntegerField()
    mean = serializers.FloatField(allow_null=True)
    std = serializers.FloatField(allow_null=True, help_text="Of the population of scored trajectories.")
    mean_before = serializers.FloatField(allow_null=True, help_text="Of what they were paid when they were recorded.")
    unscored = serializers.FloatField(help_text="The share that the reward could not score.")
    correlation = serializers.FloatField(
        allow_null=True, help_text="Pearson's, of reward and success; null where either never differs."
    )


class RewardedOut(serializers.Serializer[Any]):
    trajectory_id = serializers.UUIDField(allow_null=True, help_text="Null for a sample.")
    sample = serializers.IntegerField(required=False, help_text="Which of the samples, from 1.")
    success = serializers.BooleanField()
    reward = serializers.FloatField(allow_null=True, help_text="Null where it could not be scored.")
    previous_reward = serializers.FloatField(allow_null=True)
    components = serializers.DictField()
    evidence = serializers.DictField(help_text="Numbers only; texts are in the trajectory.")
    error = serializers.CharField()


class RewardTryOut(serializers.Serializer[Any]):
    summary = RewardSummaryOut()
    trajectories = RewardedOut(many=True)


EXAMPLE = OpenApiExample("Composite", {"reward": "composite", "options": {"feedback": 0.5}}, request_only=True)


class RewardViewSet(ScopedViewSet):
    tag = "catalogue"
    pagination_class = None  # type: ignore[assignment]

    @extend_schema(summary="Rewards and their options", responses=PluginOut(many=True))
    def retrieve(self, request: Request) -> Response:
        return Response(described(rewards))


class RewardCheckViewSet(ScopedViewSet):
    tag = "rewards"
    idempotent = ()
    serializer_class = RewardCheckOut
    pagination_class = None  # type: ignore[assignment]

    @extend_schema(
        summary="Check a reward and its options", request=RewardIn, responses={200: RewardCheckOut}, examples=[EXAMPLE]
    )
    def create(self, request: Request) -> Response:
        """Answers 200 either way: `ok` says whether a job would take them."""
        values = parsed(RewardIn, request.data)
        problems = reward_faults(values["reward"], values.get("options", {}))
        messages = [{"field": field, "message": message} for field, message in problems.items()]
        return Response({"ok": not messages, "messages": messages})


class RewardTryViewSet(ScopedViewSet):
    tag = "rewards"
    idempotent = ()
    serializer_class = RewardTryOut
    pagination_class = None  # type: ignore[assignment]

    @extend_schema(
        summary="Try a reward on stored trajectories, or on samples",
        description=(
            "Pays the latest trajectories of a job or an agent again, or samples that are given with the request, and"
            " stores nothing. Groups are ranked as far as"
            " they are among them; a reward that learns starts empty."
        ),
        request=RewardTryIn,
        responses={200: RewardTryOut},
    )
    def create(self, request: Request) -> Response:
        values = parsed(RewardTryIn, request.data)
        return Response(reward_try(self.actor, **{"options": {}, **values}))
