"""The policy of an agent of which nothing can be moved: it acts, is measured, and stays as it is.

A job on such an agent still does everything but learn: groups of rollouts, scores, advantages, held-out success,
cost. That is what tells whether a frozen model is worth training by other means, and at what price.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from training.algorithm.optimizers import Arrays


@dataclass
class FrozenPolicy:
    """No parameters. ``version`` is what its trajectories carry."""

    kind: str = "frozen"
    version: str = ""
    parameters: Arrays = field(default_factory=dict)

    def make_reference(self) -> None:
        """It is its own reference."""

    def updated(self, version: str) -> None:
        self.version = version

    def state_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "version": self.version}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """Raises KeyError where the state is that of another kind of policy."""
        if state["kind"] != "frozen":
            raise KeyError(f"a {state['kind']} policy")
        return cls(version=str(state["version"]))
