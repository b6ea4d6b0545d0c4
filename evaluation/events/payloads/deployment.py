"""``agent.rl.model.deployed.v1`` of a deployment's step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evaluation.events.payloads.timestamps import written


@dataclass(frozen=True, slots=True)
class StoredDeployment:
    """A deployment with its release. ``ramp``: the time at which each share is due, and the share. ``passed``, ``safe``
    and ``regressed`` are None where nothing measured them; ``opinion`` is the mean opinion of people on the release's
    answers, in [0, 1]. ``approved``: a person approved the release, or overrode the gate."""

    id: str
    at: datetime
    step: str
    share: float
    strategy: str
    ramp: Sequence[tuple[datetime, float]]
    model: str
    base_model: str | None
    checkpoint: str | None
    endpoint: str
    training_job: str | None
    trained_at: datetime | None
    samples: int | None
    final_reward: float | None
    passed: bool | None
    safe: bool | None
    regressed: bool | None
    opinion: float | None
    by: str
    approved: bool
    previous: str | None


def deployment_payload(row: StoredDeployment) -> dict[str, Any]:
    return {
        "deployment_id": row.id,
        "training_job_id": row.training_job,
        "timestamp": written(row.at),
        "model_info": {
            "model_id": row.model,
            "base_model": row.base_model,
            "checkpoint_path": row.checkpoint,
            "training_date": None if row.trained_at is None else written(row.trained_at),
            "training_samples": row.samples,
            "final_reward": row.final_reward,
        },
        "deployment_config": {
            "serving_platform": "agentcore",
            "endpoint": row.endpoint,
            "model_name": row.model,
            "rollout_strategy": row.strategy,
            "traffic_percentage": round(100 * row.share, 4),
            "ramp_schedule": [
                {"timestamp": written(due), "percentage": round(100 * share, 4)} for due, share in row.ramp
            ],
        },
        "validation_results": {
            "benchmark_passed": row.passed,
            "safety_checks_passed": row.safe,
            "performance_regression": row.regressed,
            "human_eval_score": row.opinion,
        },
        "metadata": {
            "deployed_by": row.by,
            "approval_status": "manual_approved" if row.approved else "automated",
            "previous_model": row.previous,
            "step": row.step,
        },
    }
