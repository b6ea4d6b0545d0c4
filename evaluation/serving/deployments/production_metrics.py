"""Metrics of all releases in production, of all organisations, for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db.models import Avg, Count, Q
from django.utils import timezone

from agentcore_site.jobs.models import Status
from evaluation.serving.models import (
    LIVE,
    AgentServing,
    Deployment,
    DeploymentStrategy,
    ProductionTrace,
    Release,
    SuiteRun,
)
from evaluation.serving.models.traces import TraceStatus

WINDOW: Final = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class ModelShare:
    """A release that gets a ``share`` of its agent's sessions. ``reward``, ``error_rate`` (0 to 1) and ``query_micros``
    (micro-dollars a query) are means of the last 30 minutes; None without requests. ``scores`` by suite."""

    version: str
    share: float
    reward: float | None
    error_rate: float | None
    query_micros: float | None
    scores: Mapping[str, float] = field(default_factory=dict)


def model_shares() -> list[ModelShare]:
    shares: dict[UUID, float] = {}
    coming = Deployment.objects.filter(state__in=LIVE, agent__archived_at=None)
    coming = coming.exclude(strategy=DeploymentStrategy.SHADOW)
    by_agent = {one.agent_id: one for one in coming}
    for serving in AgentServing.objects.filter(agent__archived_at=None).exclude(release=None):
        other = by_agent.get(serving.agent_id)
        shares[serving.release_id] = 1.0 - (other.share if other is not None else 0.0)  # type: ignore[index]
        if other is not None:
            shares[other.release_id] = other.share
    releases = Release.objects.filter(pk__in=shares).select_related("agent__organization").defer("bundle", "evidence")
    lately = ProductionTrace.objects.filter(release_id__in=shares, created_at__gte=timezone.now() - WINDOW)
    failed = Count("pk", filter=Q(status__in=(TraceStatus.FAILED, TraceStatus.INTERRUPTED)))
    figures = {
        one["release_id"]: one
        for one in lately.values("release_id").annotate(
            n=Count("pk"), failed=failed, paid=Avg("reward"), micros=Avg("cost_micros")
        )
    }
    scores: dict[UUID, dict[str, float]] = {}
    runs = SuiteRun.objects.filter(release__in=shares, job__status=Status.COMPLETED, score__isnull=False)
    for run in runs.order_by("job__created_at").values_list("release_id", "version__suite__name", "score"):
        scores.setdefault(run[0], {})[run[1]] = run[2]
    return [
        ModelShare(
            version=f"{release.agent.organization.slug}/{release.agent.slug}-{release.number}",
            share=shares[release.pk],
            reward=figures.get(release.pk, {}).get("paid"),
            error_rate=figures[release.pk]["failed"] / figures[release.pk]["n"] if release.pk in figures else None,
            query_micros=figures.get(release.pk, {}).get("micros"),
            scores=scores.get(release.pk, {}),
        )
        for release in releases
    ]
