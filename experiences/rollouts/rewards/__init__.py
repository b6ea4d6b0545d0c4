"""Rewards by name. The built-in ones are registered here; a user's own come through entry points."""

from experiences.rollouts.rewards import composite, ground_truth, judge, outcome, relative_rank, shaped
from experiences.rollouts.rewards.base import (
    FailurePay,
    GroupReward,
    JudgedReward,
    LearningReward,
    Payment,
    Reward,
    RewardFactory,
    formula,
    part_weights,
    pay,
    reward_of,
    rewards,
    rubric_of,
    settle,
)

__all__ = [
    "FailurePay",
    "GroupReward",
    "JudgedReward",
    "LearningReward",
    "Payment",
    "Reward",
    "RewardFactory",
    "formula",
    "part_weights",
    "pay",
    "reward_of",
    "rewards",
    "rubric_of",
    "settle",
]
