"""What the site itself keeps of people: answers to POSTs with an idempotency key."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from agentcore_site.models import IdempotencyRecord
from agentcore_site.tenancy.erasure import Finding, holding, places


@places.register("answers kept under idempotency keys")
def answers(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    rows = holding(IdempotencyRecord.objects.filter(organization_id=organization_id), words, texts=(), values=("body",))
    return Finding(rows.count(), rows.delete)
