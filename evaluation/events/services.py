"""Writes of events by people: the publishing switch, publishers, and dead letters."""

from __future__ import annotations

import secrets
from typing import Final

import bcrypt
from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.ids import uuid7
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require
from evaluation.events.intake import receivers  # noqa: F401  (registers them)
from evaluation.events.intake.messages import NotTaken, payload_retake
from evaluation.events.models import DeadLetter, EventCredential, EventPublisher
from experiences.models import Agent

ROUNDS: Final = 10  # of bcrypt: the passwords are random, and each connection pays for it


@transaction.atomic
def publishing_set(actor: Actor, organization: Organization, *, on: bool, production: bool | None = None) -> None:
    """Turns the publishing of the organisation's events on or off. ``production``: whether answers in production are
    published too; None leaves it, and begins with yes.

    Raises:
        Missing, Forbidden: the actor may not.
    """
    require(actor, "events.edit", organization)
    row = EventPublisher.objects.select_for_update(no_key=True).filter(organization=organization).first()
    if row is not None and not on:
        row.delete()
    elif row is None and on:
        row = EventPublisher(organization=organization, created_by=Actor.of(actor).user)
        row.production = row.production if production is None else production
        row.save(force_insert=True)
    elif row is not None and production not in (None, row.production):
        row.production = bool(production)
        row.save(update_fields=["production"])
    else:
        return
    after = {"production": row.production} if on else None
    record(actor, "events.published" if on else "events.unpublished", organization=organization.pk, after=after)


@transaction.atomic
def event_credential_create(actor: Actor, *, name: str, agent: Agent | None = None) -> tuple[EventCredential, str]:
    """Makes a publisher. Returns it with its password, which is never shown again.

    Raises:
        Missing, Forbidden: the actor may not, or the agent is another organisation's.
        Invalid: it has no name, or one that is too long.
        Conflict: the agent is archived.
    """
    organization = current_organization(actor) if agent is None else agent.organization
    require(actor, "events.edit", organization)
    name = name.strip()
    if not 1 <= len(name) <= 80:
        message = "Give it a name of at most 80 characters."
        raise Invalid(message, fields={"name": message})
    if agent is not None and agent.archived_at is not None:
        raise Conflict(f"{agent.name} is archived.")
    password, id = secrets.token_urlsafe(24), uuid7()
    row = EventCredential.objects.create(
        id=id,
        organization=organization,
        name=name,
        agent=agent,
        user=f"p-{id.hex[-12:]}",
        digest=bcrypt.hashpw(password.encode(), bcrypt.gensalt(ROUNDS)).decode(),
        created_by=Actor.of(actor).user,
    )
    record(actor, "event_publisher.made", row, after={"name": name, "agent": agent.slug if agent else None})
    return row, password


@transaction.atomic
def event_credential_revoke(actor: Actor, row: EventCredential) -> None:
    """Revokes a publisher: within seconds it can't connect any more, and its connections end. Its earlier messages
    count.

    Raises:
        Missing, Forbidden: the actor may not.
    """
    require(actor, "events.edit", row.organization_id)
    if EventCredential.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=timezone.now()):
        record(actor, "event_publisher.revoked", row)


def dead_letter_retry(actor: Actor, row: DeadLetter) -> DeadLetter:
    """Handles the stored payload again.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: it is settled, its payload was not kept, or it is refused again (with the reason).
    """
    _open(actor, row)
    if not row.payload:
        raise Conflict("Its payload was not kept, so it can't be tried again.")
    row.tries += 1
    try:
        with transaction.atomic():
            _settle(actor, row, "taken")
            payload_retake(row)
    except NotTaken as refused:
        DeadLetter.objects.filter(pk=row.pk).update(tries=row.tries, reason=refused.reason, detail=refused.detail[:300])
        raise Conflict(f"It is refused again: {refused.detail}") from refused
    return row


@transaction.atomic
def dead_letter_dismiss(actor: Actor, row: DeadLetter) -> DeadLetter:
    """Closes the dead letter without handling it.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: it is settled.
    """
    _open(actor, row)
    return _settle(actor, row, "dismissed")


def _open(actor: Actor, row: DeadLetter) -> None:
    require(actor, "events.edit", row.organization_id)  # type: ignore[arg-type]  # visible ones have an organisation
    if row.settled_at is not None:
        raise Conflict(f"This dead letter is {row.outcome} already.")


def _settle(actor: Actor, row: DeadLetter, outcome: str) -> DeadLetter:
    row.settled_at, row.outcome = timezone.now(), outcome
    mine = DeadLetter.objects.filter(pk=row.pk, settled_at=None)
    if not mine.update(settled_at=row.settled_at, outcome=outcome, tries=row.tries):
        raise Conflict("Another request was first: this dead letter is settled already.")
    record(actor, f"dead_letter.{outcome}", row, organization=row.organization_id)
    return row
