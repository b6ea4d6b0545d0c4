"""Erasure in the webhook of the audit log."""

from __future__ import annotations

from agentcore_site.audit_export.models import AuditStream
from agentcore_site.tenancy.erasure import deleted, personal_rows

# The address is deleted as a whole: the rest of it, without the words, could be another person's address.
personal_rows(
    "webhook of the audit log",
    AuditStream,
    deleted,
    texts=("url", "error"),
    note="The audit log is sent nowhere now: give it another address.",
)
