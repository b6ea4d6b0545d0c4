"""Background tasks of organisations."""

from __future__ import annotations

from agentcore_site.lib.due_work import task_with_work
from agentcore_site.tenancy.mails import mails_due, mails_send


@task_with_work("tenancy.mails", lambda: mails_due().exists())
def mails() -> int:
    """Sends the outbox. Returns how many mails went out."""
    return mails_send()
