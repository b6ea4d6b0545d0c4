"""Protocol of a trainable policy: it acts (as a runtime's chooser), and it can be differentiated.

The trainer sees a policy through ``encode`` and ``evaluate`` only; which features, which parameters and how
gradients are computed is the policy's own matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from experiences.rollouts.types import Observation
from training.algorithm.arrays import FloatArray
from training.algorithm.optimizers import Arrays


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice that was made: what was seen, and the index of the action taken."""

    observation: Observation
    choice: int


class Evaluation(Protocol):
    """Exact log-probability and entropy of each of M decisions under the present parameters."""

    logp: FloatArray
    entropy: FloatArray

    def backward(self, d_logp: FloatArray, d_entropy: FloatArray) -> Arrays:
        """Gradient of sum(d_logp * logp + d_entropy * entropy) by the parameters, both arguments (M,)."""
        ...


class EncodedDecisions(Protocol):
    """M decisions turned into arrays once, for as many evaluations as there are inner epochs.

    ``features`` (M, R) is a dense design matrix for value baselines, ``feature_ids`` (R,) names its columns.
    """

    @property
    def features(self) -> FloatArray: ...

    @property
    def feature_ids(self) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]: ...


class Policy(Protocol):
    """Interface of a policy for the trainer: a version and a storable state. Acting and learning belong to its learner
    (``training.learners``)."""

    @property
    def version(self) -> str: ...

    def updated(self, version: str) -> None:
        """Called when it was changed, with the new version's name."""
        ...

    def make_reference(self) -> None:
        """The policy as it is now is what it is compared with, and pulled towards."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Arrays and JSON values, with "kind"."""
        ...
