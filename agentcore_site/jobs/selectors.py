"""Reads of jobs, scoped to who asks."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from agentcore_site.errors import Missing
from agentcore_site.jobs.models import Job, ShareLink


def as_uuid(value: Any, noun: str = "job") -> UUID:
    """Parses an identifier that came from outside.

    Raises:
        Missing: it is no UUID, so nothing can stand under it.
    """
    try:
        return value if isinstance(value, UUID) else UUID(str(value))
    except ValueError:
        raise Missing(f"There is no {noun} {str(value)[:60]!r}.") from None


def jobs_visible(actor: Any) -> QuerySet[Job]:
    return Job.objects.visible_to(actor).select_related("created_by")


def job_get(actor: Any, job_id: Any) -> Job:
    """Raises:
    Missing: there is no such job, or it belongs to another organisation."""
    job = jobs_visible(actor).filter(id=as_uuid(job_id)).first()
    if job is None:
        raise Missing(f"There is no job {job_id}.")
    return job


def token_digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def shared_job(token: str) -> Job | None:
    """The job behind a share link that was not revoked."""
    link = ShareLink.objects.filter(digest=token_digest(token), revoked_at=None).select_related("job").first()
    return link.job if link else None


def share_alive(token: str) -> bool:
    return ShareLink.objects.filter(digest=token_digest(token), revoked_at=None).exists()
