"""The ground-truth reward: a verifier's score in [0, 1], with what it compared."""

from __future__ import annotations

import math
from typing import Any, Final

from experiences.privacy import cut_short
from experiences.rollouts.rewards.base import Payment, formula
from experiences.rollouts.types import Trajectory

KEPT: Final = ("expected", "answer", "scorer", "scorer_error")
MAX_KEPT: Final = 500  # characters of a text: the whole is in the trajectory's own evidence


@formula
def ground_truth(trajectory: Trajectory) -> Payment:
    """The verifier's score from 0 to 1, kept with the answer and what was expected."""
    score = trajectory.outcome
    # A score outside of [0, 1] is a bug of the verifier; the error marks the trajectory.
    if not (math.isfinite(score) and 0 <= score <= 1):
        raise ValueError(f"the verifier's score {score!r} is not in [0, 1]")
    evidence: dict[str, Any] = {"name": "ground_truth", "score": float(score)}
    evidence |= {name: _cut(trajectory.evidence[name]) for name in KEPT if name in trajectory.evidence}
    return Payment.at_the_end(trajectory, {"ground_truth": float(score)}, evidence)


def _cut(value: Any) -> Any:
    if isinstance(value, bool | int | float) or value is None:
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= MAX_KEPT else f"{cut_short(text, MAX_KEPT)}…"
