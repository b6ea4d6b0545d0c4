"""Notifications and webhook events of reviews: of lessons, and of changes of playbooks."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from agentcore_site.notices.events import event_record
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent


def review_ask(agent: Agent, count: int, noun: str, *, owner: Any = None) -> None:
    """So many wait for a person. In the transaction that made them. ``owner``: of the job that did."""
    many = f"{count} {noun}s wait" if count > 1 else f"a {noun} waits"
    event_record(
        agent.organization_id,
        "review.requested",
        text=f"{agent.name}: {many} for a review.",
        data={"agent": agent.slug, "count": count, "of": noun},
        path=reverse("experiences:reviews"),
        agent_id=agent.pk,
        owner=owner,
    )


def review_notify(actor: Actor, agent: Agent, decision: str, what: str, *, page: str) -> None:
    """A person decided. In the transaction of the decision."""
    who = Actor.of(actor)
    event_record(
        agent.organization_id,
        "review.decided",
        text=f"{agent.name}: {who.name} {decision} {what}.",
        data={"agent": agent.slug, "decision": decision},
        path=page,
        agent_id=agent.pk,
    )
