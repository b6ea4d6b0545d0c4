"""What a person may do with a job of any kind: pause, resume, cancel, share.

The lifecycle moves jobs and asks nobody; the rights are asked for here, so that every door agrees (SPEC S2).
"""

from __future__ import annotations

import secrets
from typing import Any

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, ShareLink
from agentcore_site.jobs.selectors import token_digest
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require


def job_pause(actor: Any, job: Job) -> Job:
    """Raises:
    Conflict: the job is not queued or running."""
    require(actor, "run.pause", job.organization_id)
    return lifecycle.pause(actor, job)


def job_resume(actor: Any, job: Job) -> Job:
    """Raises:
    Conflict: the job is not paused or failed, or another job took its place."""
    require(actor, "run.resume", job.organization_id)
    return lifecycle.resume(actor, job)


def may_cancel(actor: Any, job: Job) -> bool:
    """Whoever has the right to may, and the owner while they belong to the organisation. Being the owner stands in for
    a role, not for a key's scope: a key that may only read cancels nothing."""
    who = Actor.of(actor)
    if who.may("run.cancel", job.organization_id):
        return True
    owns = job.created_by_id is not None and job.created_by_id == getattr(who.user, "pk", None)
    in_scope = who.allowed_by_scopes is None or "run.cancel" in who.allowed_by_scopes
    return owns and in_scope and job.organization_id in who.memberships


def job_cancel(actor: Any, job: Job) -> Job:
    """Raises:
    Conflict: the job has ended."""
    if not may_cancel(actor, job):
        require(actor, "run.cancel", job.organization_id)
    return lifecycle.cancel(actor, job)


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
