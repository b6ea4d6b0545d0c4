"""Shapes of trajectories as programs read them: REST, the export and JSON-RPC."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class TrajectoryColumns(serializers.Serializer[Any]):
    """Columns that a row of a list and a whole trajectory have in common."""

    job_id = serializers.UUIDField()
    agent_id = serializers.UUIDField()
    purpose = serializers.CharField()
    arm = serializers.CharField()
    line = serializers.CharField()
    iteration = serializers.IntegerField()
    scenario = serializers.IntegerField()
    rollout = serializers.IntegerField()
    success = serializers.BooleanField()
    outcome = serializers.FloatField()
    reward = serializers.FloatField(allow_null=True, help_text="Null where it could not be scored.")
    reward_before_ranking = serializers.FloatField(
        allow_null=True, help_text="Its reward alone, where a reward that ranks the group replaced it; else null."
    )
    n_steps = serializers.IntegerField()
    truncated = serializers.BooleanField()
    error = serializers.CharField()
    tokens = serializers.IntegerField()
    duration_ms = serializers.FloatField()
    policy_version = serializers.CharField()
    model = serializers.CharField()
    created_at = serializers.DateTimeField()


class StepOut(serializers.Serializer[Any]):
    state = serializers.DictField()
    action = serializers.DictField()
    result = serializers.DictField()
    timestamp = serializers.DateTimeField()
    duration_ms = serializers.FloatField()
    reward = serializers.FloatField()
    choice = serializers.IntegerField(required=False)
    logprob = serializers.FloatField(required=False)
    tokens = serializers.IntegerField(required=False)
    cost_micros = serializers.IntegerField(required=False)
    call = serializers.DictField(
        required=False,
        help_text="How the model was asked (temperature, top_p, max_tokens): of the first call all, later what differs"
        " from it. finish: why the answer ended, where not by itself.",
    )
    parent = serializers.IntegerField(  # type: ignore[assignment]  # a field, no attribute of the class
        required=False, help_text="The place (from 0) of the step that this one is within."
    )


class TrajectoryOut(TrajectoryColumns):
    """A whole trajectory, as the export writes it too. Advantages are null until the update, and for evaluations."""

    trajectory_id = serializers.UUIDField()
    query = serializers.CharField()
    cost_usd = serializers.FloatField()
    steps = StepOut(many=True)
    normalized_reward = serializers.FloatField(allow_null=True)
    advantage = serializers.FloatField(allow_null=True)
    step_advantages = serializers.ListField(child=serializers.FloatField(), allow_null=True)
    components = serializers.DictField()
    evidence = serializers.DictField()


class ExportOut(serializers.Serializer[Any]):
    trajectories = TrajectoryOut(many=True)
    total_count = serializers.IntegerField()
    exported_count = serializers.IntegerField()
