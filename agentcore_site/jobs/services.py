"""Writes of jobs of any kind by people: pause, resume, cancel, share.

The lifecycle moves jobs and checks no rights; they are checked here, so that pages, REST and JSON-RPC agree.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.kinds import agent_of, kinds
from agentcore_site.jobs.models import ACTIVE, SHARE_DAYS, Job, ShareLink
from agentcore_site.jobs.selectors import token_digest
from agentcore_site.lib.errors import Conflict, Invalid, Missing
from agentcore_site.lib.registry import UnknownName
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require

MOST_DAYS: Final = 366  # that a share link may live


def job_pause(actor: Actor, job: Job) -> Job:
    """Raises:
    Conflict: the job is not queued or running."""
    require(actor, "run.pause", job.organization_id)
    return lifecycle.pause(actor, job)


def job_resume(actor: Actor, job: Job) -> Job:
    """Raises:
    Conflict: the job is not paused or failed, another job took its place, or its obstacle remains.
    """
    require(actor, "run.resume", job.organization_id)
    try:
        kind = kinds.get(job.kind)
    except UnknownName as error:
        raise Conflict(f"{error} Install the package that brings it, then resume the job.") from error
    kind.resume_check(job)
    return lifecycle.resume(actor, job)


def may_cancel(actor: Actor, job: Job) -> bool:
    """A role with the right ``run.cancel`` may, and the owner while they belong to the organisation. Ownership replaces
    a role, not a key's scope: a key that may only read cancels nothing."""
    who = Actor.of(actor)
    if who.may("run.cancel", job.organization_id):
        return True
    owns = job.created_by_id is not None and job.created_by_id == getattr(who.user, "pk", None)
    in_scope = who.allowed_by_scopes is None or "run.cancel" in who.allowed_by_scopes
    return owns and in_scope and job.organization_id in who.memberships


def job_cancel(actor: Actor, job: Job) -> Job:
    """Raises:
    Conflict: the job has ended."""
    if not may_cancel(actor, job):
        require(actor, "run.cancel", job.organization_id)
    return lifecycle.cancel(actor, job)


def jobs_cancel_of_agent(actor: Actor, agent_id: UUID, organization_id: UUID) -> int:
    """Cancels each active job about an agent that is being archived, so that nothing more is paid for it. The caller
    has checked the right to archive. Returns how many."""
    active = Job.objects.filter(organization_id=organization_id, status__in=ACTIVE)
    about = [job for job in active if agent_of(job) == agent_id]
    for job in about:
        lifecycle.cancel(actor, job)
    return len(about)


@transaction.atomic
def share_create(actor: Actor, job: Job, *, days: int = SHARE_DAYS) -> str:
    """Makes a read-only link that ends after ``days``. Returns its token, which is never shown again.

    Raises:
        Invalid: it would live for less than 1 or more than 366 days.
    """
    require(actor, "share.edit", job.organization_id)
    if not 1 <= days <= MOST_DAYS:
        message = f"A link lives between 1 and {MOST_DAYS} days; got {days}."
        raise Invalid(message, fields={"days": message})
    token = secrets.token_urlsafe(24)
    ShareLink.objects.create(
        organization_id=job.organization_id,
        job=job,
        digest=token_digest(token),
        created_by=Actor.of(actor).user,
        expires_at=timezone.now() + timedelta(days=days),
    )
    record(actor, "job.shared", job, after={"days": days})
    return token


@transaction.atomic
def share_revoke(actor: Actor, job: Job, link_id: UUID) -> None:
    """Ends one link of a job; an ended link stays ended.

    Raises:
        Missing: the job has no such link.
    """
    require(actor, "share.edit", job.organization_id)
    rows = ShareLink.objects.filter(job=job, id=link_id)
    if rows.filter(revoked_at=None).update(revoked_at=timezone.now()):
        record(actor, "job.unshared", job, after={"links": 1})
    elif not rows.exists():
        raise Missing(f"This job has no link {link_id}.")


@transaction.atomic
def share_revoke_all(actor: Actor, job: Job) -> int:
    """Revokes every link of the job; returns how many there were."""
    require(actor, "share.edit", job.organization_id)
    revoked = ShareLink.objects.filter(job=job, revoked_at=None).update(revoked_at=timezone.now())
    if revoked:
        record(actor, "job.unshared", job, after={"links": revoked})
    return revoked
