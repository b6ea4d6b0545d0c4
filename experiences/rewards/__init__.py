"""Rewards by name. The built-in ones are registered here; a user's own come through entry points."""

from experiences.rewards import outcome, shaped
from experiences.rewards.base import FailurePay, Payment, Reward, RewardFactory, pay, rewards

__all__ = ["FailurePay", "Payment", "Reward", "RewardFactory", "outcome", "pay", "rewards", "shaped"]
