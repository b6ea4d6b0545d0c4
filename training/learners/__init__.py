"""Learners: kinds of policy with one contract (``training.trainer.setup.Learner``), and their registry."""

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
from training.trainer.setup import Learner, ValidationPlayer

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
