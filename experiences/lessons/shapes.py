"""Rows of lessons and prompt packs as REST and CSV have them. Workers read presenters without these."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from agentcore_site.rest.shapes import Shape
from experiences.lessons.stamps import pack_fault
from experiences.models import ExperienceKind, ExperienceStatus


class ExperienceOut(Shape):
    id = serializers.UUIDField()
    agent_id = serializers.UUIDField()
    job_id = serializers.UUIDField(allow_null=True, help_text="The job that learned it.")
    handle = serializers.CharField(help_text="Its name, for ever, among the agent's lessons.")
    kind = serializers.ChoiceField(
        choices=ExperienceKind.choices, help_text="exemplar: a piece of an attempt that went well."
    )
    summary = serializers.CharField()
    why = serializers.CharField()
    domain = serializers.CharField()
    status = serializers.ChoiceField(choices=ExperienceStatus.choices)
    version = serializers.IntegerField(help_text="Rises when the text changes.")
    weight = serializers.FloatField(help_text="Probability that a rollout sees it.")
    effect = serializers.FloatField(allow_null=True, help_text="What it adds to the reward; null until measured.")
    effect_error = serializers.FloatField(allow_null=True, help_text="Standard error of the effect.")
    rollouts = serializers.IntegerField(help_text="From how many rollouts the effect comes.")
    tokens = serializers.IntegerField(help_text="What telling it costs in each call.")
    epoch = serializers.IntegerField()
    group = serializers.CharField(help_text="iteration/query of the group from which the lesson was learned.")
    task = serializers.CharField(help_text="That group's query.")
    taught_by = serializers.ListField(child=serializers.UUIDField(), help_text="Trajectories.")
    parents = serializers.ListField(
        child=serializers.CharField(), help_text="Handles of the lessons merged into this one."
    )
    ground_truth = serializers.FloatField(
        allow_null=True, help_text="Mean reward of the rollouts from which the lesson was learned."
    )
    relative_rank = serializers.FloatField(allow_null=True, help_text="Their mean rank in their group, 0 to 1.")
    tool_stats = serializers.ListField(child=serializers.DictField())
    stamp = serializers.CharField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class SourceOut(serializers.Serializer[Any]):
    path = serializers.CharField()
    sha256 = serializers.CharField()


class PackOut(Shape):
    id = serializers.UUIDField()
    name = serializers.CharField()
    domain = serializers.CharField()
    system = serializers.CharField()
    injections = serializers.ListField(child=serializers.CharField(), help_text="Texts that follow the prompt.")
    experience_slots = serializers.IntegerField(help_text="How many lessons it has room for.")
    max_words = serializers.IntegerField(help_text="Of each lesson.")
    sources = SourceOut(many=True, help_text="The files that it was loaded from; none if it was written here.")
    stamp = serializers.CharField(help_text="SHA-256 of its texts and sources.")
    stamp_fault = serializers.CharField(read_only=True, help_text="Why it may not be used; empty where its stamp fits.")
    archived_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()

    computed = {"stamp_fault": pack_fault}
