"""Reads of notices and webhooks, scoped to the actor: a notice and a personal webhook are their person's alone."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet

from agentcore_site.lib.errors import Missing
from agentcore_site.notices.models import (
    Notice,
    NoticePreferences,
    WebhookDelivery,
    WebhookEndpoint,
)
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require

UNREAD_SHOWN = 99


def notices_visible(actor: Actor) -> QuerySet[Notice]:
    """The person's own."""
    who = Actor.of(actor)
    mine: QuerySet[Notice] = Notice.objects.visible_to(who).filter(user=who.user if who.memberships else None)
    return mine.select_related("event")


def unread_count(actor: Actor) -> int:
    """At most ``UNREAD_SHOWN`` + 1."""
    return notices_visible(actor).filter(read_at=None).order_by()[: UNREAD_SHOWN + 1].count()


def preferences_of(actor: Actor, organization_id: UUID) -> NoticePreferences:
    """The person's own, or what holds without any; that is not stored.

    Raises:
        Missing: the actor does not belong to the organisation.
    """
    require(actor, "view", organization_id)
    user = Actor.of(actor).user
    found = NoticePreferences.objects.visible_to(actor).filter(organization_id=organization_id, user=user).first()
    return found or NoticePreferences(organization_id=organization_id, user=user)


def own_time_zone(actor: Actor) -> str:
    """The time zone that the person chose, in the first of their organisations where they did; "" where in none."""
    who = Actor.of(actor)
    if not who.memberships:
        return ""
    rows = NoticePreferences.objects.visible_to(who).filter(user=who.user).order_by("pk")
    return rows.values_list("time_zone", flat=True).first() or ""


def endpoints_visible(actor: Actor) -> QuerySet[WebhookEndpoint]:
    """The person's own webhooks, and those of organisations whose webhooks they may edit."""
    who = Actor.of(actor)
    edited = [organization_id for organization_id in who.organization_ids if who.may("webhook.edit", organization_id)]
    own = Q(user=who.user) if who.memberships else Q(pk__in=())
    rows: QuerySet[WebhookEndpoint] = WebhookEndpoint.objects.visible_to(who)
    return rows.filter(own | Q(user=None, organization_id__in=edited)).select_related("created_by", "organization")


def endpoints_of_organizations(actor: Actor) -> QuerySet[WebhookEndpoint]:
    """Endpoints of the actor's organisations that belong to no person.

    Raises:
        Forbidden: the actor may edit none.
    """
    who = Actor.of(actor)
    if not any(who.may("webhook.edit", organization_id) for organization_id in who.organization_ids):
        for organization_id in who.organization_ids:
            require(who, "webhook.edit", organization_id)
        raise Missing("There is nothing here for you under this address.")
    return endpoints_visible(who).filter(user=None)


def endpoint_get(actor: Actor, endpoint_id: Any) -> WebhookEndpoint:
    """Raises:
    Missing: there is none, or it is another's.
    Forbidden: it is the organisation's, and the actor may not edit its webhooks."""
    found = endpoints_visible(actor).filter(pk=endpoint_id).first()
    if found is not None:
        return found
    theirs = WebhookEndpoint.objects.visible_to(actor).filter(pk=endpoint_id, user=None).first()
    if theirs is not None:
        require(actor, "webhook.edit", theirs.organization_id)
    raise Missing("There is no such webhook.")


def with_figures(rows: QuerySet[WebhookEndpoint]) -> QuerySet[WebhookEndpoint]:
    """``waiting``: how many deliveries were not taken yet."""
    waits = Q(deliveries__taken_at=None, deliveries__given_up_at=None, deliveries__isnull=False)
    return rows.annotate(waiting=Count("deliveries", filter=waits))


def deliveries_of(endpoint: WebhookEndpoint) -> QuerySet[WebhookDelivery]:
    """Of an endpoint that the actor may see; with the events and the attempts, the newest first."""
    rows = WebhookDelivery.objects.filter(endpoint=endpoint).select_related("event")
    return rows.prefetch_related("attempts")


def delivery_get(actor: Actor, delivery_id: Any) -> WebhookDelivery:
    """Raises:
    Missing, Forbidden: as ``endpoint_get``."""
    found = WebhookDelivery.objects.visible_to(actor).filter(pk=delivery_id).select_related("event").first()
    if found is None:
        raise Missing("There is no such delivery.")
    found.endpoint = endpoint_get(actor, found.endpoint_id)
    return found
