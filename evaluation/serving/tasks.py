"""Celery tasks of production."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from celery import shared_task
from django.conf import settings

from agentcore_site.lib.due_work import task_with_work
from agentcore_site.lib.exclusive_lock import exclusive_lock
from evaluation.serving.adapters.outbox import plans_due, plans_send
from evaluation.serving.deployments.advance import deployments_advance, live_deployments
from evaluation.serving.deployments.edits import agents_with_edits, edits_advance
from evaluation.serving.feedback.sweep import answers_to_score, sessions_close, sweep
from evaluation.serving.gateway.key_limits import calls_ended
from evaluation.serving.loop.advance import live_turns, loops_advance, loops_on
from evaluation.serving.traces.recovery import recover

SWEEPING: Final = "serving.feedback.sweep"
PLAN_DELIVERY: Final = "serving.plans.tell"


@task_with_work("serving.feedback", lambda: answers_to_score().exists())
def feedback() -> dict[str, int]:
    """Computes rewards of new answers, then takes the steps of deployments that use them; does nothing while another
    worker runs it."""
    with exclusive_lock(SWEEPING) as mine:
        done = sweep() if mine else {}
    if any(done.values()):
        deployments_advance()
    return done


@shared_task(name="serving.sessions")
def sessions() -> int:
    """Finds implicit signals of ended sessions. Returns the number of abandoned ones."""
    return sessions_close()


@shared_task(name="serving.journals")
def journals() -> int:
    """Finishes what gateway processes of this host left when they ended: with its web process away, money would stay
    held. Returns the number of stored traces."""
    return recover(Path(settings.GATEWAY_JOURNAL), calls_ended)


@task_with_work("serving.plans", lambda: plans_due().exists())
def plans() -> int:
    """Delivers the current plans to webhooks, one after the other: of two workers the slower one could deliver the
    older plan last. Returns the number of delivered plans."""
    with exclusive_lock(PLAN_DELIVERY) as mine:
        return plans_send() if mine else 0


@task_with_work("serving.deployments", lambda: live_deployments().exists())
def deployments() -> int:
    """Takes a step with each live deployment. Returns their number."""
    return deployments_advance()


def loops_or_edits() -> bool:
    return any(rows.exists() for rows in (loops_on(), live_turns(), agents_with_edits()))


@task_with_work("serving.loops", loops_or_edits)
def loops() -> int:
    """Begins due turns of learning loops, and takes a step with each live turn, and with agents with automatic small
    edits. Returns the number of live turns."""
    return loops_advance() + edits_advance()
