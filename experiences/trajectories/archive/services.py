"""Services of the archive: archive now, restore a job, set the retention."""

from __future__ import annotations

import logging
import uuid

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import ACTIVE, Job, Priority
from agentcore_site.lib.errors import Conflict, DomainError, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import require
from experiences.models import Agent, ArchiveRule, ArchiveState, TrajectoryArchive
from experiences.trajectories.archive.reading import archived_visible

log = logging.getLogger(__name__)

KIND = "retention"  # of the job that archives
LONGEST = 3_650


@transaction.atomic
def retention_start(actor: Actor | None, organization: Organization) -> Job:
    """Queues the job that archives what is due, deletes what is over, and brings back what was asked for.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: it is under way.
        TooMany, Insufficient: no job is taken now.
    """
    if actor is not None:
        require(actor, "retention.run", organization)
    job = lifecycle.submit(
        actor,
        kind=KIND,
        organization=organization,
        title="Archive and retention",
        exclusive_key=f"{KIND}:{organization.pk}",
        priority=Priority.LOW if actor is None else Priority.NORMAL,
        busy="Archiving is under way already.",
    )
    record(actor, "retention.started", job)
    return job


def retention_queue(organization: Organization) -> bool:
    """The same for the system itself: not where one is under way, or none is taken now. Returns whether."""
    try:
        retention_start(None, organization)
    except DomainError as error:
        log.info("nothing is archived of %s now: %s", organization.slug, error)
        return False
    return True


def job_active(organization_id: uuid.UUID) -> Job | None:
    return Job.objects.filter(kind=KIND, organization_id=organization_id, status__in=ACTIVE).first()


@transaction.atomic
def restore_ask(actor: Actor, archive: TrajectoryArchive, job_id: uuid.UUID | None = None) -> Job:
    """Asks for the rows of an archive, or of one job in it, to be put back into the database, by a job.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: the archive was deleted, or is in the database already.
        TooMany, Insufficient: no job is taken now.
    """
    require(actor, "retention.run", archive.organization_id)
    if archive.state != ArchiveState.ARCHIVED:
        raise Conflict(f"{archive} is {archive.get_state_display().lower()}: nothing can be brought back from it.")
    parts = archived_visible(actor).filter(archive=archive)
    parts = parts if job_id is None else parts.filter(job_id=job_id)
    if not parts.order_by().update(restore_asked_at=timezone.now()):
        raise Conflict("There is nothing that is only in this archive: it is in the database already.")
    record(actor, "trajectories.restore_asked", archive, after={"job": job_id and str(job_id)})
    return job_active(archive.organization_id) or retention_start(actor, archive.organization)


@transaction.atomic
def archive_rule_set(actor: Actor, organization_id: uuid.UUID, agent: Agent | None, keep_days: int | None) -> None:
    """Says how long archives of the agent (without one: of all agents) are kept: 0 for ever, None by the next rule.

    Raises:
        Missing, Forbidden: the actor may not, or the agent is another organisation's.
        Invalid: more than ten years.
    """
    require(actor, "retention.edit", organization_id)
    if agent is not None and agent.organization_id != organization_id:
        raise Missing("There is no such agent.")
    if keep_days is not None and not 0 <= keep_days <= LONGEST:
        message = f"0 (for ever) to {LONGEST:,} days."
        raise Invalid(f"Archives are kept {message}", fields={"keep_days": message})
    mine = ArchiveRule.objects.filter(organization_id=organization_id, agent=agent)
    before = mine.values_list("keep_days", flat=True).first()
    if keep_days is None:
        mine.delete()
    elif not mine.update(keep_days=keep_days, updated_at=timezone.now()):
        ArchiveRule.objects.create(organization_id=organization_id, agent=agent, keep_days=keep_days)
    after = {"agent": agent.slug if agent else "", "keep_days": keep_days}
    record(actor, "retention.rule_set", organization=organization_id, before={"keep_days": before}, after=after)
