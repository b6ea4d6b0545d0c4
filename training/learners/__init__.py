"""Learners: kinds of policy with one contract (``base``), and their registry."""

from training.learners.base import Learner, ValidationPlayer
from training.learners.registry import (
    StoredPolicy,
    UnfitLearner,
    learner_of,
    learners,
    learners_for,
    policy_of,
    stored_policy,
)
from training.trainer.results import UpdateResult

__all__ = [
    "Learner",
    "StoredPolicy",
    "UnfitLearner",
    "UpdateResult",
    "ValidationPlayer",
    "learner_of",
    "learners",
    "learners_for",
    "policy_of",
    "stored_policy",
]
