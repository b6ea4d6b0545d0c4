"""Celery task that sends the audit log to webhooks."""

from __future__ import annotations

from agentcore_site.audit_export.sending import streams_on, streams_send
from agentcore_site.lib.due_work import task_with_work


@task_with_work("audit.send", lambda: streams_on().exists())
def audit_send() -> int:
    """Returns how many lines were accepted."""
    return streams_send()
