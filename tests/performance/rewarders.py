"""X4: what paying an epoch's hundred samples costs, for all rewards that ask no model. R6: what checking code costs."""

from __future__ import annotations

import time
from statistics import median

from experiences.rollouts.code.quality import code_quality
from experiences.rollouts.rewards import rewards
from experiences.rollouts.rewards.trial import tried
from experiences.rollouts.types import RolloutKey, Step, Trajectory
from tests.performance.table import Figure, at_most

SAMPLES, GROUP, STEPS = 100, 5, 20
SUITE = ("shaped", "outcome", "ground_truth", "composite", "relative_rank")
EVIDENCE = {"expected": "12 parcels", "answer": "12 parcels", "code_quality": {"lint": 0.9}, "feedback": {"stars": 4}}


def suite() -> list[Figure]:
    """Every reward pays 100 rollouts of 20 steps in groups of five: paid, ranked, and learned from (median of 5)."""
    lived = [(n, ("job",), _sample(n)) for n in range(SAMPLES)]
    times = []
    for _ in range(5):
        began = time.perf_counter()
        for name in SUITE:
            tried(rewards.get(name)({}), lived)
        times.append(time.perf_counter() - began)
    what = f"{len(SUITE)} rewarders, {SAMPLES} samples of {STEPS} steps"
    return [at_most("X4", what, median(times), 2, "s", digits=3), _code()]


def _code() -> Figure:
    """Ruff, bandit and three tests on 40 lines, each in a sandbox of its own (median of 5)."""
    code = "\n".join(f"def area_{n}(r: float) -> float:\n    return {n} * r * r\n" for n in range(20))
    times = []
    for _ in range(5):
        began = time.perf_counter()
        found = code_quality(code, [f"assert area_{n}(1) == {n}" for n in range(3)])
        times.append(time.perf_counter() - began)
        assert found["tests_passed"] == 3, found
    return at_most("R6", "an answer's code through ruff, bandit and three tests", median(times), 3, "s", digits=3)


def _sample(number: int) -> Trajectory:
    success = number % 3 == 0
    return Trajectory(
        key=RolloutKey(0, number // GROUP, number % GROUP),
        query=f"How many parcels does order {number} hold?",
        steps=[_step(n) for n in range(STEPS)],
        success=success,
        outcome=float(success),
        evidence=dict(EVIDENCE),
    )


def _step(number: int) -> Step:
    return Step(
        {"observation": "", "done": []},
        {"type": "tool", "tool": f"tool_{number % 4}", "parameters": {"order": number}},
        {"success": number % 5 != 0, "output": "12 parcels", "error": ""},
        duration_ms=1.0,
        tokens=300,
        cost_micros=90,
    )
