"""The circuit breaker of evolution: open while an agent's executions are slower than before its last change."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.conf import settings
from django.db.models import F
from django.urls import reverse
from django.utils import timezone

from agentcore_site.lib.errors import Unavailable
from agentcore_site.notices.events import event_record
from agentcore_site.notices.models import SiteEvent
from experiences.learning.playbooks.slowdown import Slowdown, slowdown
from experiences.models import Evolution, ExecutionTrace, Playbook

COMPARED: Final = 50  # executions on each side, at most
PAUSED: Final = "evolution.paused"


class Slowed(Unavailable):
    """Evolution of an agent is paused; the message says why and until when."""


def breaker_check(playbook: Playbook) -> None:
    """Nothing is stored: the recorded executions decide, so that the breaker closes by itself once they are as fast
    again, or ``ACE_BREAKER_HOURS`` after the change.

    Raises:
        Slowed: executions since the last change by evolution take ``ACE_BREAKER_FACTOR`` times as long as those before.
    """
    if not settings.ACE_BREAKER_FACTOR:
        return
    evolution = _last_change(playbook)
    found = _slowdown(playbook, evolution) if evolution is not None else None
    if found is not None:
        raise Slowed(
            f"Evolution of this agent is paused: since its last change executions take {found.factor:.1f} times as long"
            f" (median {found.since_ms:,.0f} ms, {found.before_ms:,.0f} ms before). It goes on by itself when they are"
            f" as fast again, at the latest {settings.ACE_BREAKER_HOURS} hours after that change."
        )


def breaker_notify(playbook: Playbook, why: Slowed) -> None:
    """Records one event for each change that opened it."""
    evolution = _last_change(playbook)
    if evolution is None:
        return
    mine = SiteEvent.objects.filter(organization_id=playbook.organization_id, type=PAUSED, agent_id=playbook.agent_id)
    if not mine.filter(data__evolution=str(evolution.job_id)).exists():
        event_record(
            playbook.organization_id,
            PAUSED,
            text=f"{playbook.agent.name}: {why.message}",
            data={"agent": playbook.agent.slug, "evolution": str(evolution.job_id)},
            path=reverse("experiences:playbook", args=[playbook.agent_id]),
            agent_id=playbook.agent_id,
        )


def _last_change(playbook: Playbook) -> Evolution | None:
    """The last evolution that changed the playbook, if it is recent."""
    since = timezone.now() - timedelta(hours=settings.ACE_BREAKER_HOURS)
    rows = Evolution.objects.filter(playbook=playbook, settled_at__gte=since, version_after__gt=F("version_before"))
    return rows.order_by("-settled_at").first()


def _slowdown(playbook: Playbook, evolution: Evolution) -> Slowdown | None:
    assert evolution.settled_at is not None
    recorded = ExecutionTrace.objects.filter(agent_id=playbook.agent_id).order_by("-recorded_at")
    since = recorded.filter(recorded_at__gt=evolution.settled_at).values_list("duration_ms", flat=True)[:COMPARED]
    before = recorded.filter(recorded_at__lte=evolution.settled_at).values_list("duration_ms", flat=True)[:COMPARED]
    return slowdown(list(before), list(since), factor=settings.ACE_BREAKER_FACTOR)
