"""Measured runs of docs/tuning.md: the recommended preset with one setting moved, over seeds.

``.venv/bin/python -m tests.performance.tuning [--seeds 5] [--trajectories 1500] [NAME …]`` prints a row of the document
for each variant. The action policy trains on the embedded ``reasoning_gym``, without a service or a database.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.performance.learning import tested
from training.config.validation import parse_config
from training.data.pools import environment_pools
from training.learners.action import ActionLearner
from training.trainer import TrainerSetup, steps

VARIANTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "recommended": {},
    "learning_rate 0.001": {"learning_rate": 0.001},
    "learning_rate 0.1": {"learning_rate": 0.1},
    "n_trajectories_per_query 2": {"n_trajectories_per_query": 2},
    "n_trajectories_per_query 16": {"n_trajectories_per_query": 16},
    "batch_size 2": {"batch_size": 2},
    "batch_size 32": {"batch_size": 32},
    "entropy_coef 0": {"entropy_coef": 0.0, "entropy_coef_failed_group": 0.0},
    "entropy_coef 0.2": {"entropy_coef": 0.2},
    "temperature 0.3": {"temperature": 0.3},
    "advantage_filter positive": {"advantage_filter": "positive"},
    "num_iterations 4": {"num_iterations": 4},
}


@dataclass(frozen=True)
class Outcome:
    """One seed: held-out success of the last policy; of its last iterations the share of groups without a spread, and
    the entropy as a share of the first one; and the iterations."""

    success: float
    flat: float
    entropy: float
    iterations: int


def train(seed: int, changed: Mapping[str, Any], trajectories: int) -> Outcome:
    config, _ = parse_config({"seed": seed, "early_stopping": {"enabled": False}, **changed})
    pools = environment_pools("reasoning_gym", {}, seed)
    setup = TrainerSetup(config, seed, pools.environment, pools.train, pools.selection, ActionLearner())
    state = setup.fresh_state()
    total, figures = 0, []
    for report in steps(setup, state):
        figures.append(report.metrics)
        total += sum(len(group.trajectories) for group in report.groups)
        if total >= trajectories:
            break
    last = figures[-5:]
    return Outcome(
        success=tested(setup, state.to_bytes(), seed),
        flat=statistics.mean(one["frac_reward_zero_std"] for one in last),
        entropy=statistics.mean(one["entropy"] for one in last) / figures[0]["entropy"],
        iterations=len(figures),
    )


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trajectories", type=int, default=1_500)
    parser.add_argument("names", nargs="*", metavar="NAME")
    given = parser.parse_args(argv)
    for name in given.names or VARIANTS:
        found = [train(seed, VARIANTS[name], given.trajectories) for seed in range(given.seeds)]
        shown = [100 * one.success for one in found]
        flat, entropy = (100 * statistics.mean(getattr(one, name) for one in found) for name in ("flat", "entropy"))
        cells = (
            f"`{name}`",
            f"{statistics.mean(shown):.0f} %",
            f"{min(shown):.0f} to {max(shown):.0f} %",
            f"{flat:.0f} %",
            f"{entropy:.0f} %",
            str(found[0].iterations),
        )
        print(f"| {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
