"""The policy of a language model's own weights: a state that a model server saved, and nothing else.

The worker never looks into it: what it is made of is the engine's matter. Its SHA-256 is its name at the model server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from experiences.rollouts.own_weights import Weights
from experiences.rollouts.runtimes.base import PromptContext
from experiences.rollouts.types import RolloutKey


@dataclass
class WeightsPolicy:
    """``weights`` are empty as long as they are the base model's. ``reference`` are those that the run began with."""

    weights: Weights = field(default_factory=Weights)
    reference: Weights = field(default_factory=Weights)
    version: str = "0"

    @classmethod
    def from_state_dict(cls, stored: Mapping[str, Any]) -> Self:
        weights, reference = (np.asarray(stored[name], np.uint8).tobytes() for name in ("weights", "reference"))
        return cls(weights_from(weights), weights_from(reference), str(stored["version"]))

    def state_dict(self) -> dict[str, Any]:
        parts = {"weights": self.weights.state, "reference": self.reference.state}
        arrays = {name: np.frombuffer(state, dtype=np.uint8) for name, state in parts.items()}
        return {"kind": "weights", "version": self.version} | arrays

    def updated(self, version: str) -> None:
        self.version = version

    def make_reference(self) -> None:
        self.reference = self.weights

    def context_for(self, key: RolloutKey, query: str) -> PromptContext:
        """An empty context: the model learned in its weights, and needs only the agent's own prompt."""
        return PromptContext("", {})


def weights_from(state: bytes) -> Weights:
    """A saved state under its name."""
    return Weights(state, hashlib.sha256(state).hexdigest()) if state else Weights()
