"""Celery tasks of events."""

from __future__ import annotations

from typing import Final

from celery import shared_task

from agentcore_site.lib.exclusive_lock import exclusive_lock
from evaluation.events.otlp.trace_collection import traces_collect

COLLECTING: Final = "events.traces.collect"


@shared_task(name="events.traces")
def traces() -> int:
    """Traces that came by OTLP and are whole become trajectories; nothing where another worker is at it. Returns how
    many."""
    with exclusive_lock(COLLECTING) as mine:
        return traces_collect() if mine else 0
