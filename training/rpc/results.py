"""Results of JSON-RPC methods of training (docs/api.md#json-rpc), as ``rpc.discover`` describes them.

A job's status and exported trajectories have the shapes of REST: training/presenters/shapes.py and
experiences/trajectories/api/trajectories.py.
"""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from agentcore_site.jobs.models import Reason, Status
from agentcore_site.rest.shapes import Shape
from training.models import PolicyCheckpoint, TrainingRun
from training.presenters.shapes import JobRow


class StartedOut(Shape):
    training_job_id = serializers.UUIDField(source="job_id")
    status = serializers.ChoiceField(choices=Status.choices, source="job.status")
    estimated_cost_usd = serializers.FloatField()
    estimated_duration_hours = serializers.FloatField()
    warnings = serializers.ListField(child=serializers.CharField())

    computed = {
        "estimated_cost_usd": lambda run: run.estimate["cost_usd"],
        "estimated_duration_hours": lambda run: round(run.estimate["seconds"] / 3600, 4),
        "warnings": lambda run: [*run.warnings, *run.estimate["warnings"]],
    }


class MovedOut(Shape):
    job_id = serializers.UUIDField(source="id")
    status = serializers.ChoiceField(choices=Status.choices)
    status_reason = serializers.ChoiceField(choices=Reason.choices, allow_blank=True)
    requested = serializers.ChoiceField(
        choices=["pause", "cancel"], allow_blank=True, help_text="What was asked of the worker and is not done yet."
    )


class CancelledOut(MovedOut):
    cancelled_at = serializers.DateTimeField(allow_null=True, help_text="Null while the worker still holds it.")
    checkpoint_saved = serializers.BooleanField(
        help_text="Whether a checkpoint holds all that it learned. One that was stopped while it looked at the"
        " selection queries has the one before."
    )

    computed = {
        "cancelled_at": lambda job: (
            job.finished_at.isoformat() if job.status == Status.CANCELLED and job.finished_at else None
        ),
        "checkpoint_saved": lambda job: has_learned(job.training_run),
    }


def has_learned(run: TrainingRun) -> bool:
    """Whether a checkpoint is kept of what it learned so far."""
    return PolicyCheckpoint.objects.filter(run=run, iteration__gte=max(run.iteration, 1)).exists()


class ListedJobOut(Shape):
    part_of = JobRow, "job_id agent_id status status_reason progress_percent created_at cost_usd"
    job_id = serializers.UUIDField()
    created_at = serializers.DateTimeField()

    computed = {"created_at": lambda run: run.job.created_at.isoformat()}


class ListedJobsOut(serializers.Serializer[Any]):
    jobs = ListedJobOut(many=True, help_text="Newest first.")
    total_count = serializers.IntegerField()
    limit = serializers.IntegerField()
    offset = serializers.IntegerField()
