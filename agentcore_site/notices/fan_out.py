"""From an event to those who want to know: deliveries to webhooks, notices at the bell, mails.

An event is spread once, in one transaction with what comes of it; workers that are at it at once take different ones.
Their order is not promised: an event may be delivered before an earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from agentcore_site.lib.links import placed
from agentcore_site.notices.catalogue import CHOSEN, EVENT_TYPES
from agentcore_site.notices.models import (
    Notice,
    NoticePreferences,
    SiteEvent,
    WebhookDelivery,
    WebhookEndpoint,
    Whose,
)
from agentcore_site.tenancy.mails import mail_queue
from agentcore_site.tenancy.models import Membership

AT_ONCE: Final = 200


@dataclass(frozen=True)
class Audience:
    """Receivers of an organisation's events: its members who can sign in, their preferences, and its endpoints."""

    people: dict[int, Any]
    wishes: dict[int, NoticePreferences]
    endpoints: Sequence[WebhookEndpoint]

    def wants(self, user_id: int, event: SiteEvent) -> bool:
        """Whether the event is one of those that concern this person."""
        wish = self.wishes[user_id]
        if event.owner_id == user_id:
            return True
        if is_personal(event):
            return False
        if wish.whose == Whose.ALL:
            return True
        return wish.whose == Whose.AGENTS and event.agent_id in wish.agents


def events_fan_out() -> int:
    """Spreads what was not yet. Returns how many events that were."""
    done = 0
    while taken := _batch():
        done += taken
    return done


def events_to_spread() -> QuerySet[SiteEvent]:
    return SiteEvent.objects.filter(spread_at=None)


@transaction.atomic
def _batch() -> int:
    waiting = events_to_spread().select_for_update(no_key=True, skip_locked=True, of=("self",))
    events = list(waiting.select_related("organization").order_by("id")[:AT_ONCE])
    audiences: dict[UUID, Audience] = {}
    for event in events:
        if event.organization_id not in audiences:
            audiences[event.organization_id] = audience_of(event.organization_id)
        _spread(event, audiences[event.organization_id])
    SiteEvent.objects.filter(pk__in=[one.pk for one in events]).update(spread_at=timezone.now())
    return len(events)


def audience_of(organization_id: UUID) -> Audience:
    members = Membership.objects.filter(organization_id=organization_id, user__is_active=True).select_related("user")
    people = {member.user_id: member.user for member in members}
    known = {one.user_id: one for one in NoticePreferences.objects.filter(organization_id=organization_id)}
    wishes = {one: known.get(one) or NoticePreferences(organization_id=organization_id, user_id=one) for one in people}
    endpoints = WebhookEndpoint.objects.filter(organization_id=organization_id, on=True)
    return Audience(people, wishes, list(endpoints))


def _spread(event: SiteEvent, audience: Audience) -> None:
    owner = {"organization_id": event.organization_id, "event": event}
    WebhookDelivery.objects.bulk_create(
        [
            WebhookDelivery(endpoint=endpoint, **owner)
            for endpoint in audience.endpoints
            if _goes_to(event, endpoint, audience)
        ],
        ignore_conflicts=True,
    )
    concerned = [person for person in audience.people if audience.wants(person, event)]
    receivers = [one for one in concerned if event.type in audience.wishes[one].bell or event.type not in CHOSEN]
    Notice.objects.bulk_create([Notice(user_id=receiver, **owner) for receiver in receivers], ignore_conflicts=True)
    for one in concerned:
        wish = audience.wishes[one]
        if event.type in wish.mail and not wish.mail_in_digest:
            _mail(event, audience.people[one])


def _goes_to(event: SiteEvent, endpoint: WebhookEndpoint, audience: Audience) -> bool:
    if event.type not in CHOSEN or (endpoint.types and event.type not in endpoint.types):
        return False
    if endpoint.user_id is None:
        return bool(endpoint.types) or not is_personal(event)
    return endpoint.user_id in audience.people and audience.wants(endpoint.user_id, event)


def is_personal(event: SiteEvent) -> bool:
    kind = EVENT_TYPES.get(event.type)
    return kind is not None and kind.personal


def _mail(event: SiteEvent, user: Any) -> None:
    how = event.data.get("how", "")
    body = "\n\n".join(
        filter(None, [event.text, how, link_of(event), "You chose this under Notifications → Notification settings."])
    )
    key = f"notice {event.pk} {user.pk}"
    mail_queue(event.organization, to=[user.email], subject=event.text, body=f"{body}\n", key=key)


def link_of(event: SiteEvent) -> str:
    """The address of the page about it; without PUBLIC_URL the site does not know its own, and it is a path."""
    return f"{settings.PUBLIC_URL}{placed(event.path)}" if event.path else ""
