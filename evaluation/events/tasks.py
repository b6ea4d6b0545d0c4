"""Celery tasks of events."""

from __future__ import annotations

from typing import Final

from agentcore_site.lib.due_work import task_with_work
from agentcore_site.lib.exclusive_lock import exclusive_lock
from evaluation.events.models import WaitingSpan
from evaluation.events.otlp.trace_collection import spans_over, traces_collect

COLLECTING: Final = "events.traces.collect"


@task_with_work("events.traces", lambda: WaitingSpan.objects.exists() or spans_over().exists())
def traces() -> int:
    """Traces that came by OTLP and are whole become trajectories; nothing where another worker is at it. Returns how
    many."""
    with exclusive_lock(COLLECTING) as mine:
        return traces_collect() if mine else 0
