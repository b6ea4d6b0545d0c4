"""Reads of evaluations, scoped to the actor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict
from uuid import UUID

from django.db.models import QuerySet

from agentcore_site.jobs.models import Status
from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from evaluation.models import Against, EvaluationResult, EvaluationRun, Split
from experiences.models import TrajectoryRecord
from experiences.trajectories.archive.reading import job_rows
from training.models import LARGE, PolicyCheckpoint


def evaluations_visible(actor: Actor) -> QuerySet[EvaluationRun]:
    rows = EvaluationRun.objects.visible_to(actor)
    return rows.select_related(
        "job", "job__created_by", "agent", "run", "run__job", "run__dataset", "checkpoint", "checkpoint__run"
    ).defer("checkpoint__data", *(f"{run}__{name}" for run in ("run", "checkpoint__run") for name in LARGE))


def evaluation_get(actor: Actor, job_id: Any) -> EvaluationRun:
    """Raises:
    Missing: no such evaluation is visible to the actor."""
    found = evaluations_visible(actor).filter(job_id=as_uuid(job_id, "evaluation")).first()
    if found is None:
        raise Missing(f"There is no evaluation {str(job_id)[:60]}.")
    return found


def evaluation_proving(checkpoint: PolicyCheckpoint) -> EvaluationRun | None:
    """The newest report of exactly these bytes for this agent, on held-out queries against the run's start; None
    without one. For services that have already authorised the checkpoint."""
    done = proofs(agent_id=checkpoint.agent_id, sha256=checkpoint.sha256)
    return done.select_related("run", "run__agent", "run__prompt_pack").order_by("-job__finished_at").first()


def proofs(**measured: Any) -> QuerySet[EvaluationRun]:
    """Reports on held-out queries against the run's start, of the agent and bytes that ``measured`` names."""
    rows = EvaluationRun.objects.filter(**measured, split=Split.HELD_OUT, against=Against.BEGAN)
    return rows.filter(job__status=Status.COMPLETED).exclude(report={})


def primary_metrics(evaluation: EvaluationRun) -> dict[str, Any] | None:
    """The metrics of the deciding test set; None until there is a report."""
    report = evaluation.report
    return report["lines"][report["primary"]]["metrics"] if report else None


def tries_of(evaluation: EvaluationRun) -> int:
    """Number of this evaluation among those on the selection queries of its job, from 1; 0 on other queries."""
    if evaluation.split != Split.SELECTION:
        return 0
    same = EvaluationRun.objects.filter(run_id=evaluation.run_id, split=Split.SELECTION)
    return same.filter(job__created_at__lte=evaluation.job.created_at).count()


class QueryChange(TypedDict):
    """The success rates of both arms on a query, and their trajectories."""

    scenario: int
    query: str
    baseline: float
    trained: float
    difference: float
    baseline_trajectories: list[UUID]
    trained_trajectories: list[UUID]


def changed_queries(evaluation: EvaluationRun, line: str, *, only_changed: bool = True) -> list[QueryChange]:
    """The queries that both arms have played, the largest changes first."""
    queries: dict[int, str] = {}
    rates: dict[tuple[str, int], float] = {}
    for result in EvaluationResult.objects.filter(evaluation=evaluation, line=line):
        queries.setdefault(result.scenario, result.query)
        rates[result.arm, result.scenario] = sum(result.successes) / len(result.successes)
    ids = trajectory_ids(evaluation, line)
    found: list[QueryChange] = [
        {
            "scenario": scenario,
            "query": query,
            "baseline": rates["baseline", scenario],
            "trained": rates["trained", scenario],
            "difference": rates["trained", scenario] - rates["baseline", scenario],
            "baseline_trajectories": ids.get(("baseline", scenario), []),
            "trained_trajectories": ids.get(("trained", scenario), []),
        }
        for scenario, query in queries.items()
        if ("baseline", scenario) in rates and ("trained", scenario) in rates
    ]
    chosen = [one for one in found if one["difference"] or not only_changed]
    return sorted(chosen, key=lambda one: (-abs(one["difference"]), one["scenario"]))


def trajectory_ids(
    evaluation: EvaluationRun, line: str, *, arm: str = "", scenarios: Sequence[int] | None = None
) -> dict[tuple[str, int], list[UUID]]:
    """The trajectories of a test set by (arm, scenario); optionally only those of one arm and some scenarios."""
    rows = TrajectoryRecord.objects.filter(job_id=evaluation.job_id, purpose="evaluation", line=line)
    if arm:
        rows = rows.filter(arm=arm)
    if scenarios is not None:
        rows = rows.filter(scenario__in=scenarios)
    found: dict[tuple[str, int], list[UUID]] = {}
    with job_rows(None, evaluation.job_id):
        for of_arm, scenario, trajectory in rows.order_by("scenario", "rollout").values_list("arm", "scenario", "id"):
            found.setdefault((of_arm, scenario), []).append(trajectory)
    return found
