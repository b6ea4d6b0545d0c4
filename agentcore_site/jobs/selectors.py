"""Reads of jobs, scoped to the actor."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from agentcore_site.jobs.models import Job, JobEvent, ShareLink
from agentcore_site.lib.errors import Missing
from agentcore_site.lib.row_scope import everything, let_in
from agentcore_site.lib.texts import uuid_of
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require

SEEN_EVERY: Final = timedelta(minutes=1)


def as_uuid(value: Any, noun: str = "job") -> UUID:
    """Parses an identifier that came from outside.

    Raises:
        Missing: it is not a UUID, so no row can have it.
    """
    if (found := uuid_of(value)) is None:
        raise Missing(f"There is no {noun} {str(value)[:60]!r}.")
    return found


def jobs_visible(actor: Actor) -> QuerySet[Job]:
    return Job.objects.visible_to(actor).select_related("created_by")


def job_get(actor: Actor, job_id: Any) -> Job:
    """Raises:
    Missing: there is no such job, or it belongs to another organisation."""
    job = jobs_visible(actor).filter(id=as_uuid(job_id)).first()
    if job is None:
        raise Missing(f"There is no job {job_id}.")
    return job


def requested_at(job: Job) -> datetime | None:
    """The time of the request that waits for the job's worker; None without one."""
    if not job.requested:
        return None
    asked = JobEvent.objects.filter(job=job, type=f"{job.requested}_requested").order_by("-seq")
    return asked.values_list("at", flat=True).first()


def token_digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@everything()
def shared_job(token: str) -> Job | None:
    """The job of a valid share link. The time of use is stored, at most once a minute."""
    link = living_links().filter(digest=token_digest(token)).select_related("job").first()
    if link is None:
        return None
    now = timezone.now()
    if link.last_seen_at is None or now - link.last_seen_at > SEEN_EVERY:
        ShareLink.objects.filter(id=link.id).update(last_seen_at=now)
    let_in(link.organization_id)
    return link.job


@everything()
def share_alive(token: str) -> bool:
    return living_links().filter(digest=token_digest(token)).exists()


def living_links() -> QuerySet[ShareLink]:
    """Links that were neither revoked nor have expired."""
    return ShareLink.objects.filter(revoked_at=None, expires_at__gt=timezone.now())


def links_visible(actor: Actor, *, ended: bool = False) -> QuerySet[ShareLink]:
    """Valid links of the organisations whose jobs the actor may share; ``ended``: also revoked and expired ones.

    Raises:
        Forbidden: the actor may share no job.
    """
    who = Actor.of(actor)
    shared = [organization_id for organization_id in who.organization_ids if who.may("share.edit", organization_id)]
    if not shared:
        for organization_id in who.organization_ids:
            require(who, "share.edit", organization_id)
    rows = ShareLink.objects.visible_to(who) if ended else living_links() & ShareLink.objects.visible_to(who)
    found: QuerySet[ShareLink] = rows.filter(organization_id__in=shared)
    return found.select_related("job", "created_by")


def link_get(actor: Actor, link_id: Any) -> ShareLink:
    """Raises:
    Missing: there is no such link.
    Forbidden: the actor may share no job."""
    found = links_visible(actor, ended=True).filter(pk=link_id).first()
    if found is None:
        raise Missing("There is no such link.")
    return found


def share_links(actor: Actor, job: Job) -> QuerySet[ShareLink]:
    """A job's valid links, newest first.

    Raises:
        Forbidden: the actor may not share it.
    """
    require(actor, "share.edit", job.organization_id)
    return living_links().filter(job=job).select_related("created_by")
