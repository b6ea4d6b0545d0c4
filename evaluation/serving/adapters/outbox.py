"""Webhooks of agents receive each change of the serving releases: queued with the change, retried until accepted."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from django.db.models import F, QuerySet
from django.utils import timezone

from agentcore_site.lib.backoff import MOST_TRIES, next_try
from agentcore_site.lib.errors import Conflict
from evaluation.serving.adapters.base import AdapterFailed, AdapterTarget
from evaluation.serving.adapters.plans import plan_of_agent
from evaluation.serving.adapters.registry import serving_adapters
from evaluation.serving.adapters.webhook import serving_secret
from evaluation.serving.models import AgentServing, Deployment, DeploymentEvent, PlanDelivery

log = logging.getLogger(__name__)

AT_ONCE: Final = 20  # each may wait for a slow server


def plan_queue(deployment: Deployment) -> None:
    """Queues a call of the agent's webhook, if it has one, in the transaction of a change."""
    if AgentServing.objects.filter(agent_id=deployment.agent_id).exclude(webhook_url="").exists():
        PlanDelivery.objects.create(deployment=deployment)


def plans_send() -> int:
    """Delivers due plans, in the order of the changes. Returns the number of delivered plans."""
    return sum(_send(row) for row in plans_due().select_related("deployment__agent").order_by("id")[:AT_ONCE])


def plans_due() -> QuerySet[PlanDelivery]:
    return PlanDelivery.objects.filter(settled_at=None, try_after__lte=timezone.now(), tries__lt=MOST_TRIES)


def _send(row: PlanDelivery) -> bool:
    """Raises nothing: one bad address must not delay the others."""
    mine = PlanDelivery.objects.filter(pk=row.pk, settled_at=None, tries=row.tries)
    if not mine.update(tries=F("tries") + 1, try_after=next_try(timezone.now(), row.tries)):
        return False  # another process was first
    try:
        delivered = _delivered(row)
    except AdapterFailed as error:
        problem = str(error)
    except Exception as error:
        log.exception("plan %s was not delivered", row.pk)
        problem = type(error).__name__
    else:
        PlanDelivery.objects.filter(pk=row.pk).update(settled_at=timezone.now())
        if delivered:
            _note(row.deployment, "told")
        return delivered
    if row.tries == 0:
        _note(row.deployment, "untold", f"{problem} It is tried again.")
    elif row.tries == MOST_TRIES - 1:
        _note(row.deployment, "untold", f"{problem} It was tried {MOST_TRIES} times and is given up.")
    return False


def _delivered(row: PlanDelivery) -> bool:
    """True if there was a plan to deliver. Raises AdapterFailed."""
    agent = row.deployment.agent
    serving = AgentServing.objects.filter(agent=agent).exclude(webhook_url="").first()
    # A later change delivers this one's plan too.
    if serving is None or PlanDelivery.objects.filter(deployment__agent=agent, pk__gt=row.pk).exists():
        return False
    try:
        plan = replace(plan_of_agent(agent), id=f"{row.deployment_id}:{row.pk}")
    except Conflict:  # its releases were erased: nothing serves the agent
        return False
    target = AdapterTarget(serving.webhook_url, serving_secret(agent.organization_id))
    serving_adapters.get("webhook").apply(plan, target)
    return True


def _note(deployment: Deployment, kind: str, note: str = "") -> None:
    DeploymentEvent.objects.create(deployment=deployment, kind=kind, share=deployment.share, note=note[:300])
