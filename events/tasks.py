"""Celery tasks of events."""

from __future__ import annotations

from celery import shared_task

from events.relay import outbox_forget


@shared_task(name="events.retention")
def retention() -> int:
    """Deletes what was published long ago. Returns how many rows."""
    return outbox_forget()
