"""Celery tasks of experiences that are not slices (those are the job engine's)."""

from __future__ import annotations

from celery import shared_task

from experiences.playbooks.retention import forget


@shared_task(name="experiences.retention")
def retention() -> dict[str, int]:
    """Deletes executions and unused deltas that are too old."""
    return forget()
