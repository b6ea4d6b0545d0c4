"""Posts events to webhooks, as Standard Webhooks says, until they were taken: at least once, by one id.

https://www.standardwebhooks.com: ``webhook-id`` is the event's id, at each attempt the same; a receiver drops what it
has. An attempt holds its row for longer than it may take; a process that dies meanwhile leaves it to the next.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import orjson
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.redaction import stored_text
from agentcore_site.lib.texts import plain
from agentcore_site.notices.catalogue import SWITCHED_OFF
from agentcore_site.notices.events import event_record
from agentcore_site.notices.fan_out import link_of
from agentcore_site.notices.models import EndpointFormat, SiteEvent, WebhookAttempt, WebhookDelivery, WebhookEndpoint
from agentcore_site.outbound import OutboundClient
from agentcore_site.outbound.webhooks import (
    CONNECT_SECONDS,
    WebhookExchange,
    WebhookFailed,
    json_exchange,
    standard_headers,
)
from agentcore_site.tenancy.mails import mail_queue
from agentcore_site.tenancy.members import admins_of
from agentcore_site.vault import Unsealable

TIMEOUT_SECONDS: Final = 15.0  # of a whole exchange, as the standard proposes
LEASE: Final = timedelta(seconds=45)  # longer than an exchange may take
OF_ENDPOINT: Final = 8  # deliveries of one endpoint at once
AT_ONCE: Final = 64
TURN_SECONDS: Final = 20.0
# Seconds after each failed attempt, as the standard proposes; after the last one it is given up.
WAITS: Final = tuple(
    int(one.total_seconds())
    for one in (
        timedelta(seconds=5), timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2), timedelta(hours=5),
        timedelta(hours=10), timedelta(hours=14), timedelta(hours=20), timedelta(hours=24),
    )
)  # fmt: skip
JITTER: Final = 0.1  # so that what failed together does not come back together
PATIENCE: Final = timedelta(days=5)  # of nothing but failures, until an endpoint is switched off
GONE: Final = 410  # the receiver asks not to be called again


@dataclass(frozen=True)
class ReadyPost:
    """A delivery that this process holds, and what it sends. ``tries``: with this one."""

    delivery: WebhookDelivery
    tries: int
    url: str
    body: bytes
    headers: dict[str, str]


def deliveries_make() -> int:
    """Makes the deliveries that are due. Returns how many were taken."""
    taken, ends = 0, time.monotonic() + TURN_SECONDS
    while time.monotonic() < ends:
        held = [one for row in _due() if (one := _held(row)) is not None]
        if not held:
            break
        taken += sum(_noted(post, done) for post, done in zip(held, asyncio.run(_sent(held)), strict=True))
    return taken


def delivery_make(delivery: WebhookDelivery) -> WebhookExchange | None:
    """Makes one now, whether or not it is due. None where another process is at it."""
    waiting = WebhookDelivery.objects.filter(pk=delivery.pk, taken_at=None, given_up_at=None)
    row = waiting.select_related("endpoint", "event__organization").first()
    if row is None or (post := _held(row, due=False)) is None:
        return None
    [done] = asyncio.run(_sent([post]))
    _noted(post, done)
    return done


def deliveries_due() -> QuerySet[WebhookDelivery]:
    return WebhookDelivery.objects.filter(
        taken_at=None, given_up_at=None, try_after__lte=timezone.now(), endpoint__on=True
    )


def _due() -> list[WebhookDelivery]:
    """A few deliveries of each endpoint: an endpoint that is slow or has many keeps no other waiting."""
    due = deliveries_due()
    found: list[WebhookDelivery] = []
    for endpoint in due.order_by().values_list("endpoint", flat=True).distinct()[:AT_ONCE]:
        rows = due.filter(endpoint=endpoint).select_related("endpoint", "event__organization")
        found += rows.order_by("try_after")[:OF_ENDPOINT]
    return found[: AT_ONCE * 2]


def _held(row: WebhookDelivery, *, due: bool = True) -> ReadyPost | None:
    """The row for this process alone, with the time from which another may have it; None: another was first."""
    now = timezone.now()
    mine = WebhookDelivery.objects.filter(pk=row.pk, tries=row.tries, taken_at=None, given_up_at=None)
    if due:
        mine = mine.filter(try_after__lte=now)
    if not mine.update(tries=F("tries") + 1, try_after=now + LEASE):
        return None
    tries = row.tries + 1
    try:
        return ReadyPost(row, tries, row.endpoint.address, *_message(row.event, row.endpoint, now))
    except (Unsealable, WebhookFailed) as error:
        _noted(ReadyPost(row, tries, "", b"", {}), WebhookExchange(str(error), None, 0))
        return None


def _message(event: SiteEvent, endpoint: WebhookEndpoint, now: datetime) -> tuple[bytes, dict[str, str]]:
    """Body and headers. Raises Unsealable, WebhookFailed."""
    if endpoint.format != EndpointFormat.STANDARD:
        return orjson.dumps(_chat_message(event, EndpointFormat(endpoint.format))), {}
    sent = {
        "type": event.type,
        "timestamp": event.created_at.isoformat(),
        "data": event.data
        | {"organization": event.organization.slug, "text": event.text, "url": link_of(event)}
        | ({"agent_id": str(event.agent_id)} if event.agent_id else {}),
    }
    body = orjson.dumps(sent)
    secret, *former = endpoint.secrets(now)
    return body, standard_headers(secret, str(event.pk), int(now.timestamp()), body, *former)


def _chat_message(event: SiteEvent, format: EndpointFormat) -> dict[str, Any]:
    """A message for a chat: a sentence, the remedy, and a link."""
    text = "\n".join(filter(None, [event.text, event.data.get("how", ""), link_of(event)]))
    if format == EndpointFormat.SLACK:
        return {"text": text}
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "TextBlock", "text": text, "wrap": True}],
    }
    attached = [{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}]
    return {"type": "message", "text": text, "attachments": attached}


async def _sent(posts: Sequence[ReadyPost]) -> list[WebhookExchange]:
    """Sends the posts at once, and returns their exchanges."""
    async with OutboundClient(connect_s=CONNECT_SECONDS) as client:
        exchanges = (json_exchange(client, one.url, one.body, one.headers, timeout_s=TIMEOUT_SECONDS) for one in posts)
        return list(await asyncio.gather(*exchanges))


@transaction.atomic
def _noted(post: ReadyPost, done: WebhookExchange) -> bool:
    """Writes down how an attempt went and when the next one is; says whether it was taken."""
    now, row = timezone.now(), post.delivery
    last = post.tries > len(WAITS)
    wait = 0.0 if last else WAITS[post.tries - 1] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  (no secret)
    next_at = now + timedelta(seconds=wait) if done.problem and not last else None
    # Only where no other process took it over meanwhile: then that one's word counts.
    mine = WebhookDelivery.objects.filter(pk=row.pk, tries=post.tries, taken_at=None)
    if not done.problem:
        mine.update(taken_at=now)
    elif last:
        mine.update(given_up_at=now)
    else:
        mine.update(try_after=next_at)
    own = row.endpoint.user_id is not None
    WebhookAttempt.objects.create(
        organization_id=row.organization_id,
        delivery=row,
        status=done.status,
        duration_ms=done.duration_ms,
        answer="" if own else stored_text(plain(done.answer.decode("utf-8", "replace")), 300),
        error=done.problem[:300],
        next_at=next_at,
    )
    _endpoint_noted(row.endpoint_id, now, done)
    return not done.problem


def _endpoint_noted(endpoint_id: UUID, now: datetime, done: WebhookExchange) -> None:
    mine = WebhookEndpoint.objects.filter(pk=endpoint_id)
    if not done.problem:
        mine.exclude(failing_since=None).update(failing_since=None)
        return
    mine.filter(failing_since=None).update(failing_since=Coalesce("failing_since", now))
    if done.status == GONE:
        _switch_off(mine, "It answered 410: the receiver asks not to be called again.")
    else:
        _switch_off(mine.filter(failing_since__lt=now - PATIENCE), f"It took nothing for {PATIENCE.days} days.")


def _switch_off(rows: QuerySet[WebhookEndpoint], reason: str) -> None:
    """Switches endpoints off. Only one of several workers reports it."""
    for endpoint in rows.filter(on=True).select_related("organization", "user", "created_by"):
        if not WebhookEndpoint.objects.filter(pk=endpoint.pk, on=True).update(on=False, off_reason=reason):
            continue
        record(None, SWITCHED_OFF, endpoint, organization=endpoint.organization_id, after={"reason": reason})
        text = f"The webhook “{endpoint}” was switched off. {reason}"
        how = "What was not taken waits: switch it on again once its receiver is well."
        event_record(
            endpoint.organization_id,
            SWITCHED_OFF,
            text=text,
            data={"webhook_id": str(endpoint.pk), "how": how},
            path=f"/webhooks/{endpoint.pk}/",
            owner=endpoint.user or endpoint.created_by,
        )
        people = (
            [endpoint.user.email]
            if endpoint.user
            else admins_of(endpoint.organization_id).values_list("user__email", flat=True)
        )
        mail_queue(endpoint.organization, to=people, subject=text, body=f"{text}\n\n{how}\n", blind=True)
