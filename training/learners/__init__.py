"""Kinds of policy and how each learns: one contract (``base``), and what is registered by it."""

from training.learners.base import Learner, ValidationPlayer
from training.learners.registry import UnfitLearner, learner_of, learners, learners_for, policy_of
from training.trainer.results import UpdateResult

__all__ = [
    "Learner",
    "UnfitLearner",
    "UpdateResult",
    "ValidationPlayer",
    "learner_of",
    "learners",
    "learners_for",
    "policy_of",
]
