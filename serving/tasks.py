"""Celery tasks of what is in production."""

from __future__ import annotations

from typing import Final

from celery import shared_task
from django.core.cache import cache

from serving.deployments.ticking import deployments_tick
from serving.feedback.sweep import sweep
from serving.loop.ticking import loops_tick

SWEEPING: Final = "serving.feedback.sweep"
LONGEST: Final = 120  # seconds; then its worker is taken for dead


@shared_task(name="serving.feedback")
def feedback() -> dict[str, int]:
    """Rewards of new answers, and what sessions say without words; nothing where another worker is at it."""
    if not cache.add(SWEEPING, "", timeout=LONGEST):
        return {}
    try:
        return sweep()
    finally:
        cache.delete(SWEEPING)


@shared_task(name="serving.deployments")
def deployments() -> int:
    """Takes a step with each live deployment. Returns how many there are."""
    return deployments_tick()


@shared_task(name="serving.loops")
def loops() -> int:
    """Begins the turns of learning loops that are due, and takes a step with each. Returns how many are under way."""
    return loops_tick()
