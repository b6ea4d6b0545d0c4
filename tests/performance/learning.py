"""P9: how many trajectories it takes to pass 95 % on held-out new items, seed by seed."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import dataclass, replace

from tests.performance.table import Figure, at_least, at_most
from training.config.validation import parse_config
from training.data.pools import environment_pools
from training.learners.action import ActionLearner
from training.trainer import TrainerSetup, play, steps

GOAL = 0.95
FIRST, LAST = 3_000, 6_000
SAMPLES = 2
# Fresh held-out items for this figure alone, beyond those that any run of these seeds looks at.
ITEMS = 400
SEEDS = range(10)


@dataclass(frozen=True)
class Learned:
    """The result of one seed: success of the checkpoint that selection chose within each budget."""

    seed: int
    within_first: float
    within_last: float
    trajectories: int
    seconds: float


def learn(seed: int) -> Learned:
    """Trains once with the recommended preset; within each budget, the best checkpoint by selection is tested."""
    config, _ = parse_config({"seed": seed})
    pools = environment_pools("reasoning_gym", {}, seed)
    setup = TrainerSetup(config, seed, pools.environment, pools.train, pools.selection, ActionLearner())
    state = setup.fresh_state()
    best, best_low, total = state.to_bytes(), -1.0, 0
    within_first: float | None = None
    began = time.perf_counter()
    trained = 0.0
    for report in steps(setup, state):
        size = sum(len(group.trajectories) for group in report.groups)
        if within_first is None and total + size > FIRST:
            trained += time.perf_counter() - began
            within_first = tested(setup, best, seed)
            began = time.perf_counter()
        if total + size > LAST:
            break
        total += size
        if report.selection and report.selection.low > best_low:
            best, best_low = state.to_bytes(), report.selection.low
        if report.stop_reason:
            break
    trained += time.perf_counter() - began
    last = tested(setup, best, seed)
    return Learned(seed, last if within_first is None else within_first, last, total, trained)


def tested(setup: TrainerSetup, data: bytes, seed: int) -> float:
    """Greedy success on fresh held-out items, each tried twice."""
    policy = setup.state_of(data).policy
    items = setup.environment.scenarios("held_out", ITEMS, seed)
    plan = setup.plan(policy, setup.reward(), temperature=0.0, purpose="", stream=3)
    played = asyncio.run(play(items, SAMPLES, replace(plan, seed=seed)))
    return played.success_rate


def seeds() -> list[Figure]:
    """Each seed's line, then how many pass within 3,000 and 6,000 trajectories."""
    chosen = [int(seed) for seed in os.environ.get("BENCH_SEEDS", "").split(",") if seed] or list(SEEDS)
    results = []
    for seed in chosen:
        found = learn(seed)
        results.append(found)
        print(
            f"seed {found.seed}: {found.within_first:.3f} within {FIRST:,}, {found.within_last:.3f} at "
            f"{found.trajectories:,} trajectories, {found.seconds:.1f} s",
            file=sys.stderr,
        )
    early = sum(one.within_first > GOAL for one in results)
    late = sum(one.within_last > GOAL for one in results)
    n = len(results)
    worst = min(one.within_last for one in results)
    return [
        at_least("P9", f"seeds above 95 % within {FIRST:,} trajectories, of {n}", early, 0.9 * n, "seeds", digits=0),
        at_least("P9", f"seeds above 95 % within {LAST:,} trajectories, of {n}", late, n, "seeds", digits=0),
        at_most("P9", "failures of the worst seed at the end", 100 * (1 - worst), 5, "%", digits=1),
    ]
