"""Writes around jobs that are not moves: share links."""

from __future__ import annotations

import secrets
from typing import Any

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.jobs.models import Job, ShareLink
from agentcore_site.jobs.selectors import token_digest
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require


@transaction.atomic
def share_create(actor: Any, job: Job) -> str:
    """Makes a read-only link. Returns its token, which is never shown again."""
    require(actor, "share.edit", job.organization_id)
    token = secrets.token_urlsafe(24)
    ShareLink.objects.create(
        organization_id=job.organization_id, job=job, digest=token_digest(token), created_by=Actor.of(actor).user
    )
    record(actor, "job.shared", job)
    return token


@transaction.atomic
def share_revoke_all(actor: Any, job: Job) -> int:
    """Revokes every link of the job; returns how many there were."""
    require(actor, "share.edit", job.organization_id)
    revoked = ShareLink.objects.filter(job=job, revoked_at=None).update(revoked_at=timezone.now())
    if revoked:
        record(actor, "job.unshared", job, after={"links": revoked})
    return revoked
