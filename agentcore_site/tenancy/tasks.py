"""Background tasks of organisations."""

from __future__ import annotations

from celery import shared_task

from agentcore_site.tenancy.mails import mails_send


@shared_task(name="tenancy.mails")
def mails() -> int:
    """Sends the outbox. Returns how many mails went out."""
    return mails_send()
