"""Reads of archives and of their rules, scoped to the actor."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Q, QuerySet

from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from experiences.models import ArchiveRule, TrajectoryArchive


def archives_visible(actor: Actor) -> QuerySet[TrajectoryArchive]:
    """With how many jobs each holds, and how many of them are back in the database."""
    jobs = Count("jobs"), Count("jobs", filter=Q(jobs__restored_at__isnull=False))
    return (
        TrajectoryArchive.objects.visible_to(actor).select_related("agent").annotate(n_jobs=jobs[0], n_restored=jobs[1])
    )


def archive_get(actor: Actor, archive_id: Any) -> TrajectoryArchive:
    """Raises:
    Missing: there is no such archive, or it belongs to another organisation."""
    found = archives_visible(actor).filter(id=as_uuid(archive_id, "archive")).first()
    if found is None:
        raise Missing(f"There is no archive {archive_id}.")
    return found


def archive_rules_visible(actor: Actor) -> QuerySet[ArchiveRule]:
    return ArchiveRule.objects.visible_to(actor).select_related("agent").order_by("agent__slug")
