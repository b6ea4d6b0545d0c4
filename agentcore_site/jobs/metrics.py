"""Prometheus metrics of the job engine. Dashboards and alerts rely on their names."""

from __future__ import annotations

from prometheus_client import Counter

from agentcore_site.lib import feedback_metrics

_training_created = Counter("training_jobs_created_total", "Training jobs created.")
_training_completed = Counter("training_jobs_completed_total", "Training jobs that ended, by status.", ["status"])
_created = Counter("jobs_created_total", "Jobs created, by kind.", ["kind"])
_completed = Counter("jobs_completed_total", "Jobs that ended, by kind and status.", ["kind", "status"])


def created(kind: str) -> None:
    """Counts a job that was made."""
    _created.labels(kind=kind).inc()
    if kind == "training":
        _training_created.inc()


def completed(kind: str, status: str) -> None:
    """Counts a job that ended."""
    _completed.labels(kind=kind, status=status).inc()
    if kind == "training":
        _training_completed.labels(status=status).inc()
        feedback_metrics.training_jobs.labels(status=status).inc()
