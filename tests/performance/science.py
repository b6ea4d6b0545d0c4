"""P4 and P5: rollouts side by side, and the policy update."""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import Any

from experiences.rollouts.collect import RolloutLimits, RolloutPlan, collect
from experiences.rollouts.rewards import rewards
from experiences.rollouts.runtimes.action import ActionRuntime
from experiences.rollouts.types import RolloutKey, Scenario, TrajectoryGroup
from tests.performance.table import Figure, at_most
from tests.support.waiting import WaitingEnvironment
from training.config.validation import parse_config
from training.data.pools import environment_pools
from training.learners.action import ActionLearner
from training.learners.action_update import update_policy
from training.trainer import TrainerSetup, TrainerState


class First:
    """Takes the first action: nothing of the policy is in the figure."""

    version = "first"

    def choose(self, observation: Any, rng: Any, *, temperature: float) -> tuple[int, float]:
        return 0, 0.0


def wall(n: int, *, concurrency: int, seconds: float) -> float:
    """Seconds that ``n`` rollouts of an environment that waits ``seconds`` take."""
    environment = WaitingEnvironment(seconds)
    work = [(RolloutKey(0, i, 0), Scenario(i, f"query {i}")) for i in range(n)]
    began = time.perf_counter()
    asyncio.run(
        collect(
            work,
            RolloutPlan(
                environment=environment,
                runtime=ActionRuntime(First(), 20, 1.0),
                reward=rewards.get("outcome")({}),
                seed=0,
                limits=RolloutLimits(concurrency=concurrency),
            ),
            kept={},
            keep=lambda one: None,
        )
    )
    return time.perf_counter() - began


def rollouts() -> list[Figure]:
    one = wall(1, concurrency=1, seconds=1.0)
    eight = wall(8, concurrency=8, seconds=1.0)
    thousand = wall(1000, concurrency=1000, seconds=1.0)
    return [
        at_most("P4", "8 rollouts of a waiting environment / one", eight / one, 1.05, "x", digits=3),
        at_most("P4", "1,000 concurrent rollouts in one process / one", thousand / one, 1.2, "x", digits=3),
    ]


def update() -> list[Figure]:
    """128 trajectories of up to 20 steps: the untrained policy's, which are the longest there are."""
    config, _ = parse_config({"batch_size": 16, "n_trajectories_per_query": 8, "num_iterations": 1})
    pools = environment_pools("reasoning_gym", {}, 1)
    setup = TrainerSetup(config, 1, pools.environment, pools.train, pools.selection, ActionLearner())
    times = []
    steps = 0
    for attempt in range(7):
        state = setup.fresh_state()
        groups = _collected(setup, state, attempt)
        steps = sum(len(one.steps) for group in groups for one in group.trajectories)
        began = time.perf_counter()
        update_policy(groups, state.policy, state.optimizer, state.value, config)
        times.append((time.perf_counter() - began) * 1000)
    what = f"policy update of 128 trajectories, {steps:,} steps (median of 7)"
    return [at_most("P5", what, median(times), 50, "ms", digits=1)]


def _collected(setup: TrainerSetup, state: TrainerState, iteration: int) -> list[TrajectoryGroup]:
    from experiences.rollouts.collect import collect_groups

    return asyncio.run(
        collect_groups(
            setup.train[iteration * 16 : iteration * 16 + 16],
            RolloutPlan(
                environment=setup.environment,
                runtime=ActionRuntime(state.policy, 20, 1.0),
                reward=setup.reward(),
                seed=1,
                limits=setup.limits(),
            ),
            iteration=iteration,
            group_size=8,
            kept={},
            keep=lambda one: None,
        )
    )
