"""Writes of people: webhooks of an organisation and of their own, read notices, and notification settings."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

from django.db import IntegrityError, transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.notices.catalogue import CHOSEN, TEST
from agentcore_site.notices.delivery import delivery_make
from agentcore_site.notices.events import event_record
from agentcore_site.notices.models import (
    EndpointFormat,
    NoticePreferences,
    WebhookDelivery,
    WebhookEndpoint,
    Whose,
)
from agentcore_site.notices.selectors import notices_visible, preferences_of
from agentcore_site.outbound import parsed
from agentcore_site.outbound.webhooks import WebhookExchange, standard_secret
from agentcore_site.outbound_settings import check_address
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization, organization_id_of
from agentcore_site.tenancy.permissions import require
from agentcore_site.vault import sealed

GRACE: Final = timedelta(hours=24)  # in which a former secret signs too
MOST_ENDPOINTS: Final = 50  # of an organisation; of a person 10
MOST_OWN: Final = 10
MOST_AGENTS: Final = 500


@dataclass(frozen=True)
class MadeEndpoint:
    """A webhook with its secret, which is shown this once; "" for chats, which check none."""

    endpoint: WebhookEndpoint
    secret: str


@transaction.atomic
def endpoint_create(
    actor: Actor,
    organization: Organization | UUID,
    *,  # the fields of the REST request
    url: str,
    name: str,
    types: Iterable[str] = (),
    format: str = EndpointFormat.STANDARD,
    own: bool = False,
) -> MadeEndpoint:
    """Makes a webhook: the organisation's, or with ``own`` the person's, who is sent what concerns them.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: the address is malformed, this site does not call it, or a type or format is unknown.
        Conflict: there is one of this name, or there are too many.
    """
    organization_id = organization_id_of(organization)
    require(actor, "view" if own else "webhook.edit", organization_id)
    user = Actor.of(actor).user
    # The organisation's row is the lock: two at once can't both be the last that is allowed.
    Organization.objects.select_for_update(no_key=True).get(pk=organization_id)
    rows = WebhookEndpoint.objects.filter(organization_id=organization_id, user=user if own else None)
    if rows.count() >= (most := MOST_OWN if own else MOST_ENDPOINTS):
        raise Conflict(f"There are {most} webhooks already. Remove one first.")
    secret = "" if format != EndpointFormat.STANDARD else _new_secret()
    row = WebhookEndpoint(
        organization_id=organization_id,
        user=user if own else None,
        name=_name(name),
        format=_format(format),
        types=_types(types),
        sealed_secret=sealed(secret),
        created_by=user,
    )
    _set_address(row, url)
    _save(row)
    record(actor, "webhook.created", row, organization=organization_id, after=_as_logged(row))
    return MadeEndpoint(row, secret)


@transaction.atomic
def endpoint_update(
    actor: Actor,
    endpoint: WebhookEndpoint,
    *,
    url: str | None = None,
    name: str | None = None,
    types: Iterable[str] | None = None,
    on: bool | None = None,
) -> WebhookEndpoint:
    """Changes the given fields. An endpoint that is switched on again starts with the deliveries that wait.

    Raises:
        Missing, Forbidden, Invalid, Conflict: as for ``endpoint_create``.
    """
    _require(actor, endpoint)
    row = WebhookEndpoint.objects.select_for_update(no_key=True).get(pk=endpoint.pk)
    before = _as_logged(row)
    if url is not None and url.strip() not in ("", row.url):
        _set_address(row, url)
    if name is not None:
        row.name = _name(name)
    if types is not None:
        row.types = _types(types)
    if on is not None and on != row.on:
        row.on, row.off_reason, row.failing_since = on, "", None
        if on:
            waiting = WebhookDelivery.objects.filter(endpoint=row, taken_at=None, given_up_at=None)
            waiting.update(try_after=timezone.now())
    _save(row)
    after = _as_logged(row)
    if changed := [name for name in after if before[name] != after[name]]:
        old, new = ({name: side[name] for name in changed} for side in (before, after))
        record(actor, "webhook.changed", row, organization=row.organization_id, before=old, after=new)
    return row


@transaction.atomic
def endpoint_remove(actor: Actor, endpoint: WebhookEndpoint) -> None:
    """Nothing is sent any more, and its log goes with it."""
    _require(actor, endpoint)
    record(actor, "webhook.removed", endpoint, organization=endpoint.organization_id, before=_as_logged(endpoint))
    endpoint.delete()


@transaction.atomic
def endpoint_rotate(actor: Actor, endpoint: WebhookEndpoint) -> MadeEndpoint:
    """Makes another secret. Both sign for a day, so that a receiver can change over.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: it is a chat, which checks no signature.
    """
    _require(actor, endpoint)
    row = WebhookEndpoint.objects.select_for_update(no_key=True).get(pk=endpoint.pk)
    if row.format != EndpointFormat.STANDARD:
        raise Conflict("A chat checks no signature: its address is its secret. Change the address instead.")
    secret = _new_secret()
    row.sealed_former, row.former_until = row.sealed_secret, timezone.now() + GRACE
    row.sealed_secret = sealed(secret)
    row.save(update_fields=["sealed_secret", "sealed_former", "former_until"])
    record(actor, "webhook.secret_made", row, organization=row.organization_id)
    return MadeEndpoint(row, secret)


def endpoint_test(actor: Actor, endpoint: WebhookEndpoint) -> WebhookExchange:
    """Sends a test event, by the way of all others, and says how it went. It is in the log, and not repeated.

    Raises:
        Missing, Forbidden: the actor may not.
    """
    _require(actor, endpoint)
    with transaction.atomic():
        event = event_record(
            endpoint.organization_id,
            TEST,
            text=f"A test of the webhook “{endpoint}”.",
            data={"webhook_id": str(endpoint.pk)},
            path=f"/webhooks/{endpoint.pk}/",
            owner=Actor.of(actor).user,
        )
        event.spread_at = timezone.now()  # it goes to this one alone
        event.save(update_fields=["spread_at"])
        row = WebhookDelivery.objects.create(organization_id=endpoint.organization_id, endpoint=endpoint, event=event)
        record(actor, "webhook.tested", endpoint, organization=endpoint.organization_id)
    done = delivery_make(row) or WebhookExchange("It is being sent.", None, 0)
    WebhookDelivery.objects.filter(pk=row.pk, taken_at=None).update(given_up_at=timezone.now())
    row.attempts.update(next_at=None)
    return done


@transaction.atomic
def delivery_again(actor: Actor, delivery: WebhookDelivery) -> None:
    """Sends an event once more by the same id, also where it was taken or given up.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: the webhook is switched off.
    """
    endpoint = delivery.endpoint
    _require(actor, endpoint)
    if not endpoint.on:
        raise Conflict("This webhook is switched off. Switch it on first.")
    WebhookDelivery.objects.filter(pk=delivery.pk).update(
        tries=0, try_after=timezone.now(), taken_at=None, given_up_at=None
    )
    after = {"event": str(delivery.event_id)}
    record(actor, "webhook.sent_again", endpoint, organization=endpoint.organization_id, after=after)


# -- notices -----------------------------------------------------------------------------------------------------------


def notices_read(actor: Actor, ids: Iterable[UUID] | None = None) -> int:
    """Marks the person's own as read: these, or all. Returns how many were not before."""
    rows = notices_visible(actor).filter(read_at=None)
    if ids is not None:
        rows = rows.filter(pk__in=list(ids))
    return rows.order_by().update(read_at=timezone.now())


def notice_unread(actor: Actor, notice_id: UUID) -> int:
    """Marks one as not read."""
    return notices_visible(actor).filter(pk=notice_id).order_by().update(read_at=None)


@transaction.atomic
def preferences_set(
    actor: Actor,
    organization: Organization | UUID,
    *,  # the fields of the REST request
    whose: str,
    bell: Iterable[str],
    mail: Iterable[str],
    agents: Iterable[UUID] = (),
    mail_in_digest: bool = False,
    digest: bool = False,
    time_zone: str = "UTC",
) -> NoticePreferences:
    """Sets the person's notifications in this organisation.

    Raises:
        Missing: the actor does not belong to it.
        Invalid: there is no such type, choice or time zone.
    """
    organization_id = organization_id_of(organization)
    row = preferences_of(actor, organization_id)
    if whose not in Whose.values:
        raise Invalid(f"Choose one of {', '.join(Whose.values)}.", fields={"whose": "There is no such choice."})
    zone = time_zone.strip() or "UTC"
    if zone not in available_timezones():
        message = f"There is no time zone {zone[:40]!r}. Write one like Europe/Berlin."
        raise Invalid(message, fields={"time_zone": message})
    chosen = list(dict.fromkeys(agents))
    if len(chosen) > MOST_AGENTS:
        raise Invalid(f"Choose at most {MOST_AGENTS} agents.", fields={"agents": f"At most {MOST_AGENTS}."})
    row.whose, row.agents, row.bell, row.mail = whose, chosen, _types(bell), _types(mail)
    row.mail_in_digest, row.time_zone = mail_in_digest, zone
    if digest and not row.digest:
        row.digest_week = week_of(zone)  # the first one comes with the next week
    row.digest = digest
    row.save()
    after = {"whose": row.whose, "bell": row.bell, "mail": row.mail, "digest": row.digest}
    record(actor, "notices.changed", row, organization=organization_id, after=after)
    return row


def week_of(zone: str) -> str:
    """The week that it is there, as ISO 8601 writes it."""
    year, week, _ = timezone.now().astimezone(ZoneInfo(zone)).isocalendar()
    return f"{year}-W{week:02d}"


# -- how ---------------------------------------------------------------------------------------------------------------


def _require(actor: Actor, endpoint: WebhookEndpoint) -> None:
    own = endpoint.user_id is not None and endpoint.user_id == getattr(Actor.of(actor).user, "pk", None)
    require(actor, "view" if own else "webhook.edit", endpoint.organization_id)


def _new_secret() -> str:
    return standard_secret(secrets.token_bytes(32))


def _set_address(row: WebhookEndpoint, url: str) -> None:
    text = url.strip()
    if not 1 <= len(text) <= 500:
        raise Invalid("Give an address of at most 500 characters.", fields={"url": "At most 500 characters."})
    check_address("url", text)
    if row.format == EndpointFormat.STANDARD:
        row.url, row.sealed_url = text, ""
    else:  # who knows a chat's address can write into it
        where = parsed(text)
        row.url, row.sealed_url = f"{where.scheme}://{where.authority}/…", sealed(text)


def _save(row: WebhookEndpoint) -> None:
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError as error:
        if "one_webhook_of_a_name" not in str(error):
            raise
        raise Conflict("There is a webhook of this name. Take another.", fields={"name": "It is taken."}) from error


def _name(name: str) -> str:
    text = " ".join(name.split())
    if not 1 <= len(text) <= 80:
        raise Invalid("A name has 1 to 80 characters.", fields={"name": "1 to 80 characters."})
    return text


def _format(format: str) -> str:
    if format not in EndpointFormat.values:
        message = f"The format must be one of {', '.join(EndpointFormat.values)}."
        raise Invalid(message, fields={"format": message})
    return format


def _types(types: Iterable[str]) -> list[str]:
    chosen = list(dict.fromkeys(types))
    if unknown := [one for one in chosen if one not in CHOSEN]:
        message = f"There is no event type {str(unknown[0])[:60]!r}."
        raise Invalid(message, fields={"types": message})
    return chosen


def _as_logged(row: WebhookEndpoint) -> dict[str, Any]:
    return {"name": row.name, "format": row.format, "url": row.url, "types": list(row.types), "on": row.on}
