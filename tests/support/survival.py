"""A measurement of lessons as its job would leave it, without playing: for tests of what reads it."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, Status
from evaluation.serving.models import Release, SurvivalRun
from evaluation.serving.survival.drop_outs import DropOuts, PairResult, pairs_planned, survival_of, verdict_of
from evaluation.serving.survival.execution import METHOD
from experiences.models import ModelEndpoint
from training.models import TrainingRun
from training.policies.served_context import ServedContext


@transaction.atomic
def survival_run_stored(
    actor: Any, release: Release, run: TrainingRun, endpoint: ModelEndpoint, *, model: str = "large"
) -> SurvivalRun:
    """A completed measurement of four pairs, in which each first play was right."""
    job = lifecycle.submit(actor, kind="survival", organization=release.organization, title=f"Lessons on {model}")
    planned = pairs_planned(range(4), (), 4, run.seed)
    drop_outs = DropOuts(ServedContext.from_json(release.bundle["context"]), run.seed)
    found = survival_of(drop_outs, [PairResult(key, "What is it?", (1.0, 0.0)) for key in planned])
    before = release.bundle["model"]
    made = SurvivalRun.objects.create(
        job=job,
        organization=release.organization,
        agent=release.agent,
        release=release,
        run=run,
        endpoint=endpoint,
        model=model,
        digest=release.digest,
        bundle=release.bundle | {"model": before | {"name": model}},
        pairs=4,
        limit_micros=2_000_000,
        seed=run.seed,
        results=[[*key, 1.0, 0.0] for key in planned],
        cost_micros=1_500,
        tokens=700,
        report={
            "verdict": verdict_of(found, model),
            "method": METHOD,
            "lessons": [lesson.as_json() for lesson in found],
            "pairs": 4,
            "planned": 4,
            "selection_pairs": 4,
            "ungraded": 0,
            "reward": 0.5,
            "out_of_money": False,
            "cost_usd": 0.0015,
            "seconds": 2.5,
            "earlier": 0,
            "digest": release.digest,
            "context": "",
            "model": {"name": model, "endpoint": endpoint.name, "address": endpoint.base_url},
            "before": {"name": before["name"], "endpoint": before["endpoint_name"], "address": before["base_url"]},
        },
    )
    now = timezone.now()
    Job.objects.filter(pk=job.pk).update(status=Status.COMPLETED, progress=1.0, started_at=now, finished_at=now)
    return made
