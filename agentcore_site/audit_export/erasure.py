"""Erasure in the webhook of the audit log."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from agentcore_site.audit_export.models import AuditStream
from agentcore_site.tenancy.erasure import ErasureFinding, erasure_handlers, holding


@erasure_handlers.register("webhook of the audit log")
def streams(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """The address is deleted as a whole: the rest of it, without the words, could be another person's address."""
    mine = AuditStream.objects.filter(organization_id=organization_id)
    found = holding(mine, words, texts=("url", "error"))
    return ErasureFinding(found.count(), found.delete, "The audit log is sent nowhere now: give it another address.")
