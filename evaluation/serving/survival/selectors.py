"""Reads of measurements of lessons on other models, scoped to the actor."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.models import Release, SurvivalRun
from training.models import LARGE


def survival_runs_visible(actor: Actor) -> QuerySet[SurvivalRun]:
    rows = SurvivalRun.objects.visible_to(actor)
    rows = rows.select_related("job", "job__created_by", "agent", "release__agent", "endpoint", "run")
    return rows.defer("bundle", "done", *(f"run__{name}" for name in LARGE))


def survival_run_get(actor: Actor, job_id: Any) -> SurvivalRun:
    """Raises:
    Missing: there is no such measurement, or it belongs to another organisation."""
    found = survival_runs_visible(actor).filter(job_id=as_uuid(job_id, "measurement of lessons")).first()
    if found is None:
        raise Missing(f"There is no measurement {str(job_id)[:60]} of lessons on another model.")
    return found


def survival_runs_of(release: Release) -> QuerySet[SurvivalRun]:
    """All of a release, the newest first. For readers who may see the release."""
    rows = SurvivalRun.objects.filter(release=release).select_related("job", "endpoint")
    return rows.defer("bundle", "done", "results").order_by("-job__created_at")
