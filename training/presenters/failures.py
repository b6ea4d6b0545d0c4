"""The tab Failures of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.http import HttpRequest

from agentcore_site.console.pages import query_params
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.trajectories.archive.reading import job_rows
from experiences.trajectories.failures import FailureGroup, failure_groups, kinds_of
from experiences.trajectories.selectors import trajectories_visible
from training.models import TrainingRun

ORDERS: Final[dict[str, tuple[str, Callable[[FailureGroup], Any]]]] = {
    "most": ("most frequent first", lambda one: -one.n),
    "latest": ("last seen first", lambda one: -one.last),
    "new": ("newest reason first", lambda one: -one.first),
    "rising": ("rising trend first", lambda one: (one.trend != "more often", -one.n)),
}


def failures_of(actor: Actor, run: TrainingRun) -> tuple[list[FailureGroup], int]:
    """Why rollouts of the job's training failed, the most frequent reason first, and how many rollouts there are.

    Raises:
        Forbidden: the actor may not look at rollouts there.
    """
    require(actor, "data.view", run.organization_id)
    with job_rows(actor, run.pk) as archive:
        rows = trajectories_visible(actor).filter(job_id=run.pk, purpose="training")
        if archive is None:  # the month is constant for a job: naming it lets PostgreSQL look into one partition only
            rows = rows.filter(month=run.job.created_at.date().replace(day=1))
        return failure_groups(rows, run.iteration)


def failures_tab(request: HttpRequest, actor: Actor, run: TrainingRun) -> dict[str, Any]:
    kind, search, order = query_params(request, "kind", "find", "order")
    groups, total = failures_of(actor, run)
    order = order if order in ORDERS else "most"
    found = [group for group in groups if kind in ("", group.kind) and search.casefold() in group.title.casefold()]
    return {
        "groups": sorted(found, key=ORDERS[order][1]),
        "any_failure": bool(groups),
        "failed": sum(group.n for group in groups),
        "total": total,
        "kinds": kinds_of(groups),
        "kind": kind,
        "find": search,
        "orders": [(key, title) for key, (title, _) in ORDERS.items()],
        "order": order,
    }
