"""Celery tasks of what is in production."""

from __future__ import annotations

from typing import Final

from celery import shared_task

from agentcore_site.lib.exclusive_lock import exclusive_lock
from evaluation.serving.adapters.outbox import plans_tell
from evaluation.serving.deployments.edits import edits_tick
from evaluation.serving.deployments.ticking import deployments_tick
from evaluation.serving.feedback.sweep import sessions_close, sweep
from evaluation.serving.loop.ticking import loops_tick

SWEEPING: Final = "serving.feedback.sweep"
TELLING: Final = "serving.plans.tell"


@shared_task(name="serving.feedback")
def feedback() -> dict[str, int]:
    """Rewards of new answers, and the steps of deployments that they are evidence for; nothing where another worker is
    at it."""
    with exclusive_lock(SWEEPING) as mine:
        done = sweep() if mine else {}
    if any(done.values()):
        deployments_tick()
    return done


@shared_task(name="serving.sessions")
def sessions() -> int:
    """What sessions that are over say without words. Returns how many were abandoned."""
    return sessions_close()


@shared_task(name="serving.plans")
def plans() -> int:
    """Tells webhooks what serves their agents now, one after the other: of two workers the slower could tell the older
    plan last. Returns how many were told."""
    with exclusive_lock(TELLING) as mine:
        return plans_tell() if mine else 0


@shared_task(name="serving.deployments")
def deployments() -> int:
    """Takes a step with each live deployment. Returns how many there are."""
    return deployments_tick()


@shared_task(name="serving.loops")
def loops() -> int:
    """Begins the turns of learning loops that are due, and takes a step with each, and with agents whose small edits go
    out by themselves. Returns how many are under way."""
    return loops_tick() + edits_tick()
