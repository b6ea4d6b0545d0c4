"""The outcome reward: what the environment's scorer says, paid at the end."""

from __future__ import annotations

from experiences.rollouts.options import Option
from experiences.rollouts.rewards.base import formula
from experiences.rollouts.types import Trajectory


@formula(
    partial_credit=Option("Pay the score as it is (true, the default), or 1 for success and 0 for anything else.", True)
)
def outcome(trajectory: Trajectory, *, partial_credit: bool) -> float:
    """The environment's score of the answer, and nothing else."""
    return trajectory.outcome if partial_credit else float(trajectory.success)
