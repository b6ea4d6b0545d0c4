"""Prometheus metrics of the job engine. Dashboards and alerts rely on their names.

Jobs that were created are counted in the database when ``/metrics`` is asked (``agentcore_site.prometheus``): also a
command makes jobs, a process whose counters no one collects."""

from __future__ import annotations

from prometheus_client import Counter

from agentcore_site.lib import feedback_metrics

_training_completed = Counter("training_jobs_completed_total", "Training jobs that ended, by status.", ["status"])
_completed = Counter("jobs_completed_total", "Jobs that ended, by kind and status.", ["kind", "status"])


def completed(kind: str, status: str) -> None:
    """Counts a job that ended."""
    _completed.labels(kind=kind, status=status).inc()
    if kind == "training":
        _training_completed.labels(status=status).inc()
        feedback_metrics.training_jobs.labels(status=status).inc()
