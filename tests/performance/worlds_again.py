"""The value of an agent's second run, and of beginning it with the measurements of the first one.

``python -m tests.performance.worlds_again --workers 2 --worlds 40 --queries 60 --out FILE.jsonl``: in each simulated
world a first run, and two second ones on the same split: one begins with what the first shipped (``shipped``), one also
with the candidate that its gate refused and with all that its rollouts measured (``known``). Options as of
``tests.performance.worlds``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean, stdev
from typing import Any

from experiences.learning.lessons.library import Library
from tests.performance.worlds import Result, Task, parser, proved, reachable, recorded, served
from tests.support.context_runs import Finished, learned
from tests.support.world_truth import attainable
from training.policies.context import ContextPolicy
from training.policies.prior_estimates import PriorEstimates

ARMS = ("shipped", "known")
SECOND = 1_000_000  # what is added to a world's seed for the draws of its second runs


def measured(task: Task) -> Result:
    """One world: a first run, and a second one of each kind."""
    world, began = task.world(), time.perf_counter()
    with served(task, world) as server:
        rows = task.rows(world)
        first = learned(server.base_url, rows, task.config, seed=task.seed)
        base = proved(first, server.brain, first.setup.fresh_state().policy, "baseline")[0]
        after = {"first": proved(first, server.brain, first.state.policy, "first")[0]}
        shipped = {"first": bool(first.shipped)}
        for arm in ARMS:
            known = begins_with(first, arm)
            run = learned(server.base_url, rows, task.config, seed=task.seed + SECOND, split_seed=task.seed, **known)
            after[arm] = proved(run, server.brain, run.state.policy, arm)[0]
            policy: Any = run.state.policy
            shipped[arm] = policy.shipped != policy.start
    found = attainable(world, [scenario.query for scenario in first.pools.held_out])
    return {
        **asdict(task),
        **asdict(world.variation),
        "attainable": reachable(world, found),
        "base": base,
        **{f"after_{name}": value - base for name, value in after.items()},
        **{f"shipped_{name}": value for name, value in shipped.items()},
        "seconds": round(time.perf_counter() - began, 1),
    }


def begins_with(first: Finished, arm: str) -> Mapping[str, Any]:
    """The start of a second run, by the names of ``TrainerSetup``."""
    policy = first.state.policy
    assert isinstance(policy, ContextPolicy)
    lessons = [replace(one, status="active") for one in policy.shipped_lessons]
    weights = {one.handle: float(p) for one, p in zip(policy.library, policy.probabilities, strict=True)}
    if arm == "shipped":
        return {"library": Library.of([one.as_dict() for one in lessons]), "weights": weights}
    handles = {one.handle for one in lessons}
    refused = policy.library.chosen(policy.candidate(first.setup.config.context.ship_confidence).handles)
    lessons += [replace(one, status="proposed") for one in refused if one.handle not in handles]
    return {
        "library": Library.of([one.as_dict() for one in lessons]),
        "weights": weights,
        "known": PriorEstimates.of(policy),
    }


def summary(found: Sequence[Result]) -> str:
    """Shares of the attainable, and the two arms beside each other, in points."""
    done = [one for one in found if "error" not in one]
    lines = [f"{len(done)} worlds, {len(found) - len(done)} failed"]
    for name in ("first", *ARMS):
        share = fmean(one[f"after_{name}"] for one in done) / max(fmean(one["attainable"] for one in done), 1e-9)
        lines.append(
            f"{name:8} {100 * fmean(one[f'after_{name}'] for one in done):+.1f} points, {share:.2f} of the attainable, "
            f"ships in {sum(one[f'shipped_{name}'] for one in done)}"
        )
    apart = [100 * (one["after_known"] - one["after_shipped"]) for one in done]
    error = stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else float("nan")
    return "\n".join([*lines, f"known less shipped: {fmean(apart):+.1f} points, standard error {error:.1f}"])


def main(arguments: Sequence[str]) -> int:
    print(summary(recorded(measured, parser(__doc__, "worlds-again.jsonl").parse_args(arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
