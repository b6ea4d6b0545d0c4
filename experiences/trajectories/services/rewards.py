"""Rewards before money is spent on them: are the options right, and what would it have paid?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NotRequired, TypedDict
from uuid import UUID

from django.db.models import QuerySet

from agentcore_site.jobs.selectors import job_get
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.models import TrajectoryRecord
from experiences.models.agent_lookup import agent_get
from experiences.rollouts.rewards import Reward, rewards, rubric_of
from experiences.rollouts.rewards.samples import sample_trajectory
from experiences.rollouts.rewards.trial import Tried, reward_faults, summary, tried
from experiences.trajectories.selectors import trajectories_visible
from experiences.trajectories.services.judging import trajectories_judged
from experiences.trajectories.storage import as_trajectory

MAX_TRIED: Final = 200
MAX_JUDGED: Final = 10
MAX_ERROR: Final = 200
WORDS: Final = frozenset({"name", "by", "scale", "unscored"})  # texts of the evidence that are our own
MAX_DEPTH: Final = 6


class TriedTrajectory(TypedDict):
    """The reward of one trajectory, or of a ``sample`` (from 1), and the ``previous_reward``; None: unscored."""

    trajectory_id: UUID | None
    success: bool
    reward: float | None
    previous_reward: float | None
    components: dict[str, float | None]
    evidence: Any
    error: str
    sample: NotRequired[int]


class RewardTrial(TypedDict):
    """The pay of a tried reward: the fields of ``RewardSummary``, and each trajectory."""

    summary: dict[str, Any]
    trajectories: list[TriedTrajectory]


def reward_try(
    actor: Actor,
    *,  # the fields of the REST request
    reward: str,
    options: Mapping[str, Any],
    job: Any = None,
    agent: Any = None,
    samples: Sequence[Any] | None = None,
    limit: int = MAX_TRIED,
) -> RewardTrial:
    """Tries the reward on the latest ``limit`` trajectories of a job or of an agent's training, or on the ``samples``
    of the request. Nothing is stored, and no text of a trajectory is given out. A reward that wants a judge has
    ``MAX_JUDGED`` trajectories judged, and the agent's budget pays; samples have no agent, and are not judged.

    Raises:
        Missing: there is no such job or agent, or it is not the actor's.
        Forbidden: the actor may look, but not have a judge asked.
        Invalid: not one source, or reward, options or limit are wrong, or the judge can't be asked.
    """
    if sum(source is not None for source in (job, agent, samples)) != 1:
        message = "Give one of job, agent and samples."
        raise Invalid(message, fields={"job": message})
    if not 1 <= limit <= MAX_TRIED:
        message = f"limit must be between 1 and {MAX_TRIED}; got {limit}."
        raise Invalid(message, fields={"limit": message})
    rows = None if samples is not None else _of_job(actor, job) if job is not None else _of_agent(actor, agent)
    problems = reward_faults(reward, options)
    if problems:
        raise Invalid(" ".join(problems.values()), fields=problems)
    if rows is None:
        return _on_samples(rewards.get(reward)(options), list(samples or ()))
    lived = list(rows[:limit])
    before = {row.id: _number(row.reward) for row in lived}
    made = rewards.get(reward)(options)
    rubric = rubric_of(made)
    trajectories = [as_trajectory(row) for row in (lived if rubric is None else lived[:MAX_JUDGED])]
    if rubric is not None and trajectories:
        trajectories_judged(actor, lived[0].agent_id, rubric, trajectories)
    results = tried(
        made,
        [
            (row.id, (row.job_id, row.purpose, row.arm, row.line), trajectory)
            for row, trajectory in zip(lived, trajectories, strict=False)
        ],
    )
    results = [Tried(result.id, result.paid, before[result.id]) for result in results]
    return {"summary": asdict(summary(results)), "trajectories": [_result(result) for result in results]}


def _on_samples(made: Reward, samples: Sequence[Any]) -> RewardTrial:
    if not 1 <= len(samples) <= MAX_TRIED:
        message = f"Give between 1 and {MAX_TRIED} samples; got {len(samples)}."
        raise Invalid(message, fields={"samples": message})
    if rubric_of(made) is not None:
        message = "A judge is paid by an agent: name a job or an agent whose trajectories it shall judge."
        raise Invalid(message, fields={"samples": message})
    try:
        given = [sample_trajectory(one, place) for place, one in enumerate(samples)]
    except ValueError as error:
        raise Invalid(str(error), fields={"samples": str(error)}) from error
    results = sorted(tried(made, [(place, (), one) for place, one in enumerate(given)]), key=lambda one: one.id)
    shown: list[TriedTrajectory] = [
        {**_result(result), "trajectory_id": None, "sample": result.id + 1} for result in results
    ]
    return {"summary": asdict(summary(results)), "trajectories": shown}


def _of_job(actor: Actor, job_id: Any) -> QuerySet[TrajectoryRecord]:
    job = job_get(actor, job_id)
    require(actor, "data.view", job.organization_id)
    rows = trajectories_visible(actor).filter(job_id=job.id, month=job.created_at.date().replace(day=1))
    return rows.order_by("-iteration", "-scenario", "-rollout")


def _of_agent(actor: Actor, name: Any) -> QuerySet[TrajectoryRecord]:
    agent = agent_get(actor, name)
    require(actor, "data.view", agent.organization_id)
    rows = trajectories_visible(actor).filter(
        organization_id=agent.organization_id, agent_id=agent.id, purpose="training"
    )
    return rows.order_by("-created_at", "-id")


def _result(one: Tried) -> TriedTrajectory:
    paid = one.paid
    return {
        "trajectory_id": one.id,
        "success": paid.success,
        "reward": _finite(paid.reward),
        "previous_reward": _finite(one.before),
        "components": {name: _finite(value) for name, value in paid.components.items()},
        "evidence": without_texts(paid.evidence.get("reward") or {}),
        "error": paid.error[:MAX_ERROR],
    }


def without_texts(value: Any, *, depth: int = 0) -> Any:
    """Numbers, flags and their names; of the texts only those that rewards themselves choose. Who may see a
    trajectory reads its texts there, one by one."""
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        return {
            str(name)[:60]: item if name in WORDS and isinstance(item, str) else without_texts(item, depth=depth + 1)
            for name, item in value.items()
            if name in WORDS or not isinstance(item, str)
        }
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return _finite(value)
    return None


def _number(stored: float | None) -> float:
    return math.nan if stored is None else stored


def _finite(value: float) -> float | None:
    try:
        return float(value) if math.isfinite(value) else None
    except (OverflowError, TypeError, ValueError):
        return None
