"""Results of JSON-RPC methods of training (docs/api.md#json-rpc), and their shapes for ``rpc.discover``.

A job's status and exported trajectories have the shapes of REST: training/presenters/shapes.py and
experiences/trajectories/api/trajectories.py.
"""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from agentcore_site.jobs.models import Job, Reason, Status
from agentcore_site.lib.money import dollars
from training.models import PolicyCheckpoint, TrainingRun
from training.presenters.shapes import percent


class StartedOut(serializers.Serializer[Any]):
    training_job_id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=Status.choices)
    estimated_cost_usd = serializers.FloatField()
    estimated_duration_hours = serializers.FloatField()
    warnings = serializers.ListField(child=serializers.CharField())


class MovedOut(serializers.Serializer[Any]):
    job_id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=Status.choices)
    status_reason = serializers.ChoiceField(choices=Reason.choices, allow_blank=True)
    requested = serializers.ChoiceField(
        choices=["pause", "cancel"], allow_blank=True, help_text="What was asked of the worker and is not done yet."
    )


class CancelledOut(MovedOut):
    cancelled_at = serializers.DateTimeField(allow_null=True, help_text="Null while the worker still holds it.")
    checkpoint_saved = serializers.BooleanField()


class ListedJobOut(serializers.Serializer[Any]):
    job_id = serializers.UUIDField()
    agent_id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=Status.choices)
    status_reason = serializers.ChoiceField(choices=Reason.choices, allow_blank=True)
    progress_percent = serializers.FloatField()
    created_at = serializers.DateTimeField()
    cost_usd = serializers.FloatField()


class ListedJobsOut(serializers.Serializer[Any]):
    jobs = ListedJobOut(many=True, help_text="Newest first.")
    total_count = serializers.IntegerField()
    limit = serializers.IntegerField()
    offset = serializers.IntegerField()


def started(run: TrainingRun) -> dict[str, Any]:
    return {
        "training_job_id": str(run.job_id),
        "status": run.job.status,
        "estimated_cost_usd": run.estimate["cost_usd"],
        "estimated_duration_hours": round(run.estimate["seconds"] / 3600, 4),
        "warnings": [*run.warnings, *run.estimate["warnings"]],
    }


def moved(job: Job) -> dict[str, Any]:
    return {"job_id": str(job.id), "status": job.status, "status_reason": job.status_reason, "requested": job.requested}


def cancelled(run: TrainingRun) -> dict[str, Any]:
    saved = PolicyCheckpoint.objects.filter(run=run, iteration__gte=max(run.iteration, 1)).exists()
    at = run.job.finished_at if run.job.status == Status.CANCELLED else None
    return moved(run.job) | {"cancelled_at": at.isoformat() if at else None, "checkpoint_saved": saved}


def listed(run: TrainingRun) -> dict[str, Any]:
    return {
        "job_id": str(run.job_id),
        "agent_id": str(run.agent_id),
        "status": run.job.status,
        "status_reason": run.job.status_reason,
        "progress_percent": percent(run),
        "created_at": run.job.created_at.isoformat(),
        "cost_usd": dollars(run.spent_micros),
    }
