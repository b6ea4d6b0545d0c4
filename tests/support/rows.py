"""Rows as a job would leave them, without running one: for tests of what reads them."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.models import Job, Status
from experiences.models import Agent
from experiences.rollouts.types import RolloutKey, Scenario, Step, Trajectory, TrajectoryGroup
from experiences.trajectories.storage import TrajectoryScope, groups_write, trajectories_write
from tests.support.running import SMALL, SMALL_POOL
from training.models import Iteration, PolicyCheckpoint, TrainingRun
from training.services.checkpoints import checkpoint_save
from training.services.runs import run_start

BEGAN = 1_760_000_000.0


def queued_run(actor: Any, agent: Agent, **extra: Any) -> TrainingRun:
    return run_start(
        actor, agent=agent, environment_options=SMALL_POOL, config=SMALL | extra.pop("config", {}), **extra
    )


def lived_run(actor: Any, agent: Agent, *, iterations: int = 2, queries: int = 3, rollouts: int = 4) -> TrainingRun:
    """A finished run with trajectories, groups, iterations, a scored checkpoint and events."""
    run = queued_run(actor, agent)
    owner = owner_of(run)
    for iteration in range(iterations):
        groups = [group(iteration, scenario, rollouts) for scenario in range(queries)]
        trajectories_write(owner, [one for made in groups for one in made.trajectories])
        groups_write(owner, iteration, groups)
        Iteration.objects.create(
            run=run,
            number=iteration + 1,
            trajectories=queries * rollouts,
            cost_micros=1500,
            metrics={"success_rate": 0.5, "reward_mean": 0.25, "entropy": 1.5},
            rollout_ms=10.0,
            update_ms=2.0,
        )
    done(run, iterations, trajectories=iterations * queries * rollouts)
    return TrainingRun.objects.select_related("job", "agent", "organization", "best_checkpoint").get(job=run.job)


def owner_of(run: TrainingRun) -> TrajectoryScope:
    month = run.job.created_at.date().replace(day=1)
    return TrajectoryScope(run.job_id, run.organization_id, run.agent_id, month)


def done(run: TrainingRun, iterations: int, *, trajectories: int) -> None:
    with transaction.atomic():
        figures = {"success_rate": 0.5, "reward_mean": 0.25, "reward_std": 0.1, "loss": 0.0}
        run.metrics = figures
        run.save()
        selection = {"success_rate": 0.6, "low": 0.4, "high": 0.8}
        checkpoint_save(run, iteration=iterations, data=b"policy", metrics=figures, selection=selection, final=False)
        TrainingRun.objects.filter(job=run.job).update(
            iteration=iterations, trajectories=trajectories, cost_micros=3000, tokens=77
        )
        now = timezone.now()
        Job.objects.filter(id=run.job_id).update(
            status=Status.COMPLETED, status_reason="all_iterations", progress=1.0, started_at=now, finished_at=now
        )
        for number in range(3):
            event_add(run.job, "iteration", message=f"Iteration {number}.", data={"iteration": number})


def group(iteration: int, scenario: int, rollouts: int) -> TrajectoryGroup:
    """The first half of the siblings succeeds."""
    query = f"question {scenario}: what is {scenario} + {scenario}?"
    siblings = [trajectory(iteration, scenario, index, query, index < rollouts // 2) for index in range(rollouts)]
    advantages = [1.0 if one.success else -1.0 for one in siblings]
    return TrajectoryGroup(
        Scenario(scenario, query), siblings, advantages, advantages, [[value] * 2 for value in advantages], True
    )


def trajectory(iteration: int, scenario: int, index: int, query: str, success: bool) -> Trajectory:
    steps = [
        Step(
            {"observation": "", "done": []},
            {"type": "tool", "tool": "int_calc", "parameters": {}},
            {"success": True, "output": "4", "error": ""},
            timestamp=BEGAN,
            duration_ms=1.0,
            reward=0.1,
            choice=0,
            logprob=-0.7,
        ),
        Step(
            {"observation": "4", "done": ["int_calc#ok"]},
            {"type": "answer", "tool": "", "parameters": {}},
            {"success": success, "output": "4", "error": ""},
            timestamp=BEGAN + 1,
            duration_ms=1.0,
            reward=1.0 if success else 0.0,
            choice=1,
            logprob=-0.2,
        ),
    ]
    return Trajectory(
        key=RolloutKey(iteration, scenario, index),
        query=query,
        steps=steps,
        success=success,
        outcome=float(success),
        reward=1.1 if success else -0.1,
        components={"outcome": float(success)},
        started_at=BEGAN + iteration,
        duration_ms=3.0,
        policy_version=f"iteration-{iteration}",
        model="action",
    )


def checkpoint_of_run(run: TrainingRun) -> PolicyCheckpoint:
    return PolicyCheckpoint.objects.get(run=run)
