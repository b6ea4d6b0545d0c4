"""A/A: the same agent measured twice, and how often the intervals of comparisons hold what is true.

``python -m tests.performance.same --workers 2``: 20,000 rollouts of agents with an empty context, in 20 simulated
worlds, half of them as one arm and half as the other. Nothing lies between the arms, so 0 has to lie in about 95 of 100
intervals, for any number of queries. Then the intervals of drawn comparisons in which something does lie between
them. Neither Django nor a service is needed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Final

import numpy as np

from agentcore_site.lib.statistics import wilson_interval
from tests.performance.worlds import Result, Task, parser, recorded, served
from tests.support.context_runs import Finished, setup_of, success_of
from training.algorithm.inference import PairedDifference, paired_difference

WORLDS: Final = 20
HELD_OUT: Final = 50  # queries of a world
SAMPLES: Final = 10  # of each query and arm
SIZES: Final = (6, 12, 20, 60)
DRAWN: Final = 4_000  # comparisons of each size and effect
EFFECTS: Final = (0.0, 0.1, 0.2)
SPREAD: Final = 0.26  # half the range of what single queries gain: a standard deviation of 15 points
RESAMPLES: Final = 1_999

Values = np.ndarray[Any, np.dtype[np.float64]]


def measured(task: Task) -> Result:
    """Both arms in one world: (queries, samples) each."""
    world = task.world()
    with served(task, world) as server:
        setup, reflecting, player, pools = setup_of(server.base_url, task.rows(world), task.config, seed=task.seed)
        arms = {}
        for name, seed in (("a", task.seed), ("b", task.seed + WORLDS)):  # equal seeds would give equal answers
            own = replace(setup, seed=seed)
            agent = Finished(own, own.fresh_state(), [], reflecting.answered, 0, player, pools)
            arms[name] = success_of(agent, agent.state.policy, samples=SAMPLES, purpose=name)
    return {"seed": task.seed, "queries": task.queries, **{name: arm[:HELD_OUT].tolist() for name, arm in arms.items()}}


def table(found: Sequence[Result]) -> str:
    """The whole, then how many of the intervals at each size hold the truth."""
    done = [one for one in found if "error" not in one]
    a, b = (np.vstack([np.array(one[name], dtype=np.float64) for one in done]) for name in ("a", "b"))
    whole = paired_difference(b, a)
    lines = [
        f"{a.size + b.size:,} rollouts of {len(a):,} queries, {len(found) - len(done)} worlds failed: difference"
        f" {100 * whole.mean:+.2f} points, 95 % interval {100 * whole.low:+.2f} to {100 * whole.high:+.2f},"
        f" p = {whole.p_value:.2f}"
    ]
    rng = np.random.default_rng(0)
    for n in SIZES:
        order = rng.permutation(len(a))[: len(a) // n * n].reshape(-1, n)
        held = [_holds(_compared(b[rows], a[rows]), 0.0) for rows in order]
        lines.append(f"{n:3} queries, as played:           {_share(held)}")
        for effect in EFFECTS:
            held = [_holds(_compared(*_drawn(rng, n, effect)), effect) for _ in range(DRAWN)]
            lines.append(f"{n:3} queries, {100 * effect:+3.0f} points, drawn:     {_share(held)}")
    return "\n".join(lines)


def _compared(treatment: Values, control: Values) -> PairedDifference:
    return paired_difference(treatment, control, resamples=RESAMPLES)


def _holds(found: PairedDifference, truth: float) -> bool:
    return found.low <= truth <= found.high


def _drawn(rng: np.random.Generator, n: int, effect: float) -> tuple[Values, Values]:
    """Successes (n, samples) of two arms of n queries. Where there is an effect, queries gain more or less than it; no
    rate leaves [0, 1], so that the mean is what it should be."""
    rate = rng.uniform(0.2, 0.5, n)
    gain = effect + rng.uniform(-SPREAD, SPREAD, n) * (effect > 0)
    after = rng.random((n, SAMPLES)) < (rate + gain)[:, None]
    before = rng.random((n, SAMPLES)) < rate[:, None]
    return after.astype(np.float64), before.astype(np.float64)


def _share(held: Sequence[bool]) -> str:
    if not held:
        return "too few queries were played"
    low, high = wilson_interval(sum(held), len(held))
    return f"{fmean(held):.3f} of {len(held):,} intervals hold the truth ({low:.3f} to {high:.3f})"


def main(arguments: Sequence[str]) -> int:
    options: argparse.ArgumentParser = parser(__doc__, "same.jsonl")
    options.set_defaults(worlds=WORLDS, queries=5 * HELD_OUT, null=True)
    print(table(recorded(measured, options.parse_args(arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
