"""Reads of events."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import QuerySet

from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from evaluation.events.accounts import PublisherAccount
from evaluation.events.models import DeadLetter, EventCredential, EventPublisher, OutboxEvent
from evaluation.events.subjects import REQUEST, REWARD, STATUS, TRAJECTORY

# Agents publish trajectories; services also publish rewards and training status.
OF_AGENTS = (TRAJECTORY, REWARD, REQUEST)
OF_SERVICES = (*OF_AGENTS, STATUS)


def dead_letters_visible(actor: Actor) -> QuerySet[DeadLetter]:
    return DeadLetter.objects.visible_to(actor)


def dead_letter_get(actor: Actor, letter_id: Any) -> DeadLetter:
    """Raises:
    Missing: no such dead letter is visible to the actor."""
    found = dead_letters_visible(actor).filter(id=as_uuid(letter_id, "dead letter")).first()
    if found is None:
        raise Missing(f"There is no dead letter {str(letter_id)[:60]}.")
    return found


def event_credentials_visible(actor: Actor) -> QuerySet[EventCredential]:
    return EventCredential.objects.visible_to(actor).select_related("agent", "created_by")


def event_credential_get(actor: Actor, credential_id: Any) -> EventCredential:
    """Raises:
    Missing: no such publisher is visible to the actor."""
    found = event_credentials_visible(actor).filter(id=as_uuid(credential_id, "publisher")).first()
    if found is None:
        raise Missing(f"There is no publisher {str(credential_id)[:60]}.")
    return found


def publishing_since(actor: Actor, organization_id: uuid.UUID) -> EventPublisher | None:
    """The organisation's switch, if it publishes."""
    return EventPublisher.objects.visible_to(Actor.of(actor)).filter(pk=organization_id).first()


def waiting(organization_id: uuid.UUID) -> int:
    """Number of the organisation's events that are not published yet."""
    return OutboxEvent.objects.filter(organization_id=organization_id, settled_at=None).count()


def publishing_organizations() -> set[uuid.UUID]:
    """The organisations with publishers that may connect now."""
    return set(EventCredential.objects.filter(revoked_at=None).values_list("organization_id", flat=True))


def publisher_accounts() -> list[PublisherAccount]:
    """The accounts of all organisations' publishers that may connect now, for the server."""
    rows = EventCredential.objects.filter(revoked_at=None).order_by("id")
    return [
        PublisherAccount(row.pk, row.organization_id, row.user, row.digest, OF_AGENTS if row.agent_id else OF_SERVICES)
        for row in rows
    ]
