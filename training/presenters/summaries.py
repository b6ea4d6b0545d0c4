"""Summaries of runs for lists: a small curve each, and per agent the latest run and the last proven gain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from django.db.models import Count, F, QuerySet
from django.db.models.functions import Greatest, Mod

from experiences.models import Agent
from training.models import Iteration, TrainingRun
from training.selectors.runs import measured

SPARK_POINTS: Final = 32


def success_sparks(runs: Sequence[TrainingRun]) -> dict[UUID, list[float | None]]:
    """Per run at most about 64 sampled success rates, evenly over its iterations. One query for all."""
    sparks: dict[UUID, list[float | None]] = {run.pk: [] for run in runs}
    stride = Greatest(1, F("run__iteration") / SPARK_POINTS)
    rows = Iteration.objects.filter(run__in=list(sparks)).annotate(place=Mod(F("number"), stride)).filter(place=0)
    for run_id, rate in rows.order_by("run_id", "number").values_list("run_id", "metrics__success_rate"):
        sparks[run_id].append(rate)
    return {run_id: _smoothed(values) for run_id, values in sparks.items()}


def agent_rows(agents: Sequence[Agent]) -> list[dict[str, Any]]:
    """Per agent: its latest run, its last proven run, and how many runs it has."""
    mine = TrainingRun.objects.filter(agent__in=agents)
    latest = _last_of_each(mine)
    proven = _last_of_each(measured(mine, "improvement"))
    counts = dict(mine.values_list("agent_id").annotate(n=Count("pk")))
    return [
        {
            "agent": agent,
            "latest": latest.get(agent.pk),
            "proven": proven.get(agent.pk),
            "n_runs": counts.get(agent.pk, 0),
        }
        for agent in agents
    ]


def gains_by_agent(agents: QuerySet[Agent], *, limit: int) -> list[TrainingRun]:
    """The last proven run of each agent, the largest gain first."""
    runs = _last_of_each(measured(TrainingRun.objects.filter(agent__in=agents), "improvement")).values()
    return sorted(runs, key=lambda run: -run.verdict["improvement"])[:limit]


def _last_of_each(runs: QuerySet[TrainingRun]) -> dict[UUID, TrainingRun]:
    rows = runs.select_related("job", "agent").order_by("agent_id", "-job__created_at").distinct("agent_id")
    return {run.agent_id: run for run in rows}


def _smoothed(values: Iterable[float | None], window: int = 4) -> list[float | None]:
    """Trailing means: single iterations of a few rollouts jump too much for a curve an inch wide."""
    known = [value for value in values if value is not None]
    recent = (known[max(0, i - window + 1) : i + 1] for i in range(len(known)))
    return [sum(values) / len(values) for values in recent]
