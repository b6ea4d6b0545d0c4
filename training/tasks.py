"""Celery tasks of training that are not slices (those are the job engine's)."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from experiences.trajectories.storage import partition_ensure
from training.services import checkpoints


@shared_task(name="training.retention")
def retention() -> int:
    """Deletes old checkpoints, moves those that waited for the object storage, and makes next month's partition before
    it is needed."""
    month = timezone.now().date().replace(day=1)
    partition_ensure(month)
    partition_ensure(month.replace(year=month.year + month.month // 12, month=month.month % 12 + 1))
    checkpoints.checkpoints_move()
    return checkpoints.retention()
