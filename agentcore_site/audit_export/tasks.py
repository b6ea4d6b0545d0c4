"""Celery task that sends the audit log to webhooks."""

from __future__ import annotations

from celery import shared_task

from agentcore_site.audit_export.sending import streams_send


@shared_task(name="audit.send")
def audit_send() -> int:
    """Returns how many lines were accepted."""
    return streams_send()
