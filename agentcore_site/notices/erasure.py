"""Erasure in what people and systems were notified of."""

from __future__ import annotations

from agentcore_site.notices.models import SiteEvent, WebhookAttempt, WebhookEndpoint
from agentcore_site.tenancy.erasure import deleted, personal_rows, rewritten

personal_rows(
    "events that were told",
    SiteEvent,
    rewritten,
    texts=("text", "path"),
    values=("data",),
    note="Webhooks were sent some of these events as they were: ask their receivers to erase them too.",
)
# They are deleted as a whole: what is left of an address without the words could be another person's address.
personal_rows(
    "webhooks",
    WebhookEndpoint,
    deleted,
    texts=("url", "name", "off_reason"),
    note="Webhooks that named the person were removed.",
)
personal_rows("attempts of webhooks", WebhookAttempt, rewritten, texts=("answer", "error"))
