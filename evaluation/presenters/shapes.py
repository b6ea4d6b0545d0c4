"""An evaluation as programs read it."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from agentcore_site.jobs.models import Status
from agentcore_site.rest.money import Usd
from agentcore_site.rest.shapes import Shape
from evaluation.models import Against, Split

AGAINST = "Context of the baseline. `nothing`, for agents of language models: no lessons and no playbook."


@extend_schema_serializer(deprecate_fields=["evaluation_id"])
class EvaluationRow(Shape):
    id = serializers.UUIDField(source="job_id")
    evaluation_id = serializers.UUIDField(source="job_id", help_text="The former name of `id`.")
    agent_id = serializers.UUIDField()
    training_job_id = serializers.UUIDField(source="run_id")
    checkpoint_id = serializers.UUIDField()
    checkpoint = serializers.CharField(source="checkpoint.label")
    status = serializers.ChoiceField(choices=Status.choices, source="job.status")
    progress_percent = serializers.FloatField(source="job.percent", read_only=True)
    split = serializers.ChoiceField(choices=Split.choices)
    against = serializers.ChoiceField(choices=Against.choices, help_text=AGAINST)
    samples = serializers.IntegerField(help_text="Rollouts of each query and arm.")
    final = serializers.BooleanField(help_text="Requested at the end of its run.")
    verdict = serializers.CharField(read_only=True, help_text="The finding as a sentence; empty until it is done.")
    cost_usd = Usd(source="cost_micros")
    created_at = serializers.DateTimeField(source="job.created_at")
    finished_at = serializers.DateTimeField(source="job.finished_at", allow_null=True)

    computed = {"verdict": lambda evaluation: str(evaluation.report.get("verdict", ""))}
