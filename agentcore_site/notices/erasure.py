"""Erasure in what people and systems were told."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from agentcore_site.notices.models import SiteEvent, WebhookAttempt, WebhookEndpoint
from agentcore_site.tenancy.erasure import ErasureFinding, erasure_handlers, holding, rewritten


@erasure_handlers.register("events that were told")
def told(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = SiteEvent.objects.filter(organization_id=organization_id)
    note = "Webhooks were sent some of these events as they were: ask their receivers to erase them too."
    return rewritten(mine, words, texts=("text", "path"), values=("data",), note=note)


@erasure_handlers.register("webhooks")
def endpoints(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """They go whole: what is left of an address without the words could be another's."""
    mine = WebhookEndpoint.objects.filter(organization_id=organization_id)
    found = holding(mine, words, texts=("url", "name", "off_reason"))
    return ErasureFinding(found.count(), found.delete, "Webhooks that named the person were removed.")


@erasure_handlers.register("attempts of webhooks")
def attempts(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = WebhookAttempt.objects.filter(organization_id=organization_id)
    return rewritten(mine, words, texts=("answer", "error"))
