"""A reward tried on recorded trajectories: what it would have paid. Pure; nothing given is changed."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from agentcore_site.lib.registry import UnknownName
from experiences.rollouts.rewards.base import (
    LearningReward,
    Reward,
    RewardFactory,
    RewardTimedOut,
    pay,
    rewards,
    rubric_of,
    settle,
)
from experiences.rollouts.types import Trajectory

OWN_ERROR = "reward: "
JUDGED = (
    "The reward {name} asks a language model for a verdict, and this agent chooses actions: there is none to ask. Take"
    " another reward, or train an agent that is a language model."
)


def option_errors(name: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Faults of a reward and its options, by field ("reward", "options", "options.<name>"); empty if there are none.

    Raises:
        UnknownName: there is no such reward; the message lists those there are.
    """
    factory = rewards.get(name)
    found: dict[str, str] = {}
    left = dict(options)
    while message := _refusal(factory, left):
        named = [one for one in left if _mentions(message, one) >= 0]
        if not named:
            # Without the faulty ones, what is left may be refused for lack of them: that is no mistake of its own.
            return found or {"options": message}
        first = min(named, key=partial(_mentions, message))
        found[f"options.{first}"] = message
        del left[first]
    return found


def reward_faults(name: str, options: Mapping[str, Any], *, has_model: bool = True) -> dict[str, str]:
    """``option_errors`` for people: an unknown reward is a fault of the field "reward", and so is one that asks a
    judge where there is no model to ask (``has_model``)."""
    try:
        wrong = option_errors(name, options)
    except UnknownName as error:
        return {"reward": str(error)}
    if not has_model and not wrong and rubric_of(rewards.get(name)(options)) is not None:
        return {"reward": JUDGED.format(name=name)}
    return wrong


def reward_fields(name: str, options: Mapping[str, Any], *, has_model: bool) -> dict[str, str]:
    """``reward_faults`` by the names that agents and configurations give the fields: reward, reward_options.<name>."""
    faults = reward_faults(name, options, has_model=has_model)
    return {field if field == "reward" else f"reward_{field}": text for field, text in faults.items()}


def _mentions(message: str, option: str) -> int:
    """Position of the first mention of an option in a message; -1 without one."""
    found = re.search(rf"(?<!\w){re.escape(option)}(?!\w)", message)
    return found.start() if found else -1


def _refusal(factory: RewardFactory, options: Mapping[str, Any]) -> str:
    try:
        factory(options)
    except ValueError as error:
        return str(error) or "it is refused"
    except Exception as error:  # a plugin's factory: its bug is the answer
        return f"{type(error).__name__}: {error}"
    return ""


@dataclass(frozen=True, slots=True)
class Tried:
    """A trajectory as the reward pays it, and what it was paid when it was recorded (NaN: unscored)."""

    id: Any
    paid: Trajectory
    before: float


@dataclass(frozen=True, slots=True)
class RewardSummary:
    """Of ``n`` trajectories. ``mean`` and ``std`` (of the population) are those of the scored ones, None without any;
    ``unscored`` is a share; ``correlation`` is Pearson's of reward and success, None where either never differs."""

    n: int
    mean: float | None
    std: float | None
    mean_before: float | None
    unscored: float
    correlation: float | None


def tried(reward: Reward, lived: Iterable[tuple[Any, tuple[Any, ...], Trajectory]]) -> list[Tried]:
    """Pay of ``reward`` for (id, owner, trajectory)s, in the order of training.

    ``owner`` identifies the iterations and groups (job, arm, line). A group is ranked as far as it is
    there; a reward that learns starts empty for each owner's first iteration and learns after each of them.
    """
    found: list[Tried] = []
    ordered = sorted(lived, key=lambda one: (tuple(map(str, one[1])), one[2].key))
    for _, of_iteration in groupby(ordered, key=lambda one: (one[1], one[2].key.iteration)):
        here = [Tried(name, _unpaid(one), one.reward) for name, _, one in of_iteration]
        for one in here:
            _pay(reward, one.paid)
        for _, siblings in groupby(here, key=lambda one: one.paid.key.scenario):
            with suppress(RewardTimedOut):  # they stay as they were paid singly
                settle(reward, [sibling.paid for sibling in siblings])
        if isinstance(reward, LearningReward):
            reward.learn([one.paid for one in here])
        found += here
    return found


def _pay(reward: Reward, trajectory: Trajectory) -> None:
    """In a trial a reward that runs out of time leaves its rollout unscored: there is no run to halt."""
    try:
        pay(reward, trajectory)
    except RewardTimedOut as error:
        trajectory.error, trajectory.reward = f"{OWN_ERROR}{error}", math.nan


def summary(results: Sequence[Tried]) -> RewardSummary:
    scored = [result for result in results if math.isfinite(result.paid.reward)]
    amounts = [one.paid.reward for one in scored]
    before = [result.before for result in results if math.isfinite(result.before)]
    success = [float(one.paid.success) for one in scored]
    return RewardSummary(
        n=len(results),
        mean=statistics.fmean(amounts) if amounts else None,
        std=statistics.pstdev(amounts) if amounts else None,
        mean_before=statistics.fmean(before) if before else None,
        unscored=1 - len(scored) / len(results) if results else 0.0,
        correlation=_correlation(amounts, success),
    )


def _correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    if len(a) < 2 or max(a) - min(a) < 1e-12 or max(b) == min(b):
        return None
    return statistics.correlation(a, b)


def _unpaid(trajectory: Trajectory) -> Trajectory:
    """A copy without what the reward of its own job wrote, its failure included."""
    evidence = {name: value for name, value in trajectory.evidence.items() if name != "reward"}
    return replace(
        trajectory,
        steps=[replace(step, reward=0.0) for step in trajectory.steps],
        reward=math.nan,
        components={},
        evidence=evidence,
        error="" if trajectory.error.startswith(OWN_ERROR) else trajectory.error,
    )
