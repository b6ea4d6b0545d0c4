"""Reads of what people say of jobs: comments, and one's own pins."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet

from agentcore_site.tenancy.actors import Actor
from training.models import JobComment, JobPin, TrainingRun


def comments_of(actor: Actor, run: TrainingRun) -> QuerySet[JobComment]:
    rows: QuerySet[JobComment] = JobComment.objects.visible_to(actor)
    return rows.filter(run=run).select_related("author").order_by("created_at", "id")


def pinned_jobs(actor: Actor) -> set[UUID]:
    """The jobs that come first in the actor's own list."""
    return set(JobPin.objects.visible_to(actor).filter(person=actor.user).values_list("run_id", flat=True))
