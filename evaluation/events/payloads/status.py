"""``agent.rl.training.status.v1`` of a training job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from evaluation.events.payloads.timestamps import written

# Our status by theirs: a paused job is waiting.
STATUSES: Final = {"paused": "queued"}
FIGURES: Final = {
    "loss": "loss",
    "reward_mean": "reward_mean",
    "reward_std": "reward_std",
    "policy_entropy": "entropy",
    "kl_divergence": "approx_kl",
    "learning_rate": "learning_rate",
}  # their name by ours
CODES: Final = {
    "diverged": "CONVERGENCE",
    "llm_refused": "INFRA",
    "crashed": "INFRA",
    "disk_full": "INFRA",
    "reward_timeout": "INFRA",
    "error": "INFRA",
}
MEMORY: Final = ("memoryerror", "out of memory")


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A training job's figures at the time ``at``. ``scores`` and ``holdout`` are of the held-out queries."""

    id: str
    at: datetime
    status: str
    reason: str
    iteration: int
    iterations: int
    epoch: tuple[int, int]  # the current one, and their number
    eta_seconds: float | None
    figures: Mapping[str, Any]
    best: Mapping[str, Any] | None
    artifacts: Mapping[str, str | None]
    cost_usd: float
    seconds: float
    gpu_hours: float | None = None  # None: not measured
    error: str = ""
    holdout: float | None = None
    improvement: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)


def status_payload(run: StoredRun) -> dict[str, Any]:
    failed = run.status == "failed"
    return {
        "training_job_id": run.id,
        "timestamp": written(run.at),
        "status": STATUSES.get(run.status, run.status),
        "progress": {
            "current_epoch": run.epoch[0],
            "total_epochs": run.epoch[1],
            "current_step": run.iteration,
            "total_steps": run.iterations,
            "percent_complete": round(100 * min(1.0, run.iteration / max(run.iterations, 1)), 2),
            "eta_seconds": run.eta_seconds,
        },
        "metrics": {
            "current": {theirs: _number(run.figures.get(ours)) for theirs, ours in FIGURES.items()},
            "best": None if run.best is None else dict(run.best),
        },
        "evaluation_results": None
        if run.holdout is None
        else {
            "holdout_reward": run.holdout,
            "benchmark_scores": dict(run.scores),
            "improvement_over_baseline": run.improvement,
        },
        "artifacts": dict(run.artifacts),
        "resource_usage": {
            "gpu_hours": run.gpu_hours,
            "cost_usd": run.cost_usd,
            "peak_memory_gb": None,
            "total_training_time_seconds": run.seconds,
        },
        "error": {"code": _code(run), "message": run.error, "traceback": None} if failed else None,
        "metadata": {
            "training_platform": "agentcore",
            "cuda_version": None,
            "pytorch_version": None,
            "status_reason": run.reason,
        },
    }


def cancelled_payload(training_job_id: str, at: datetime, reason: str) -> dict[str, Any]:
    """Notifies the service elsewhere that its training is no longer wanted."""
    return {
        "training_job_id": training_job_id,
        "timestamp": written(at),
        "status": "cancelled",
        "metadata": {"training_platform": "agentcore", "status_reason": reason},
    }


def _code(run: StoredRun) -> str:
    """One of the four codes of the schema."""
    if any(word in run.error.lower() for word in MEMORY):
        return "OOM"
    return CODES.get(run.reason, "DATA")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
