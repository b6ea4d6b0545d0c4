"""Protocol of a policy for the trainer, and a decision that a policy took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from experiences.rollouts.types import Observation


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice that was made: what was seen, and the index of the action taken."""

    observation: Observation
    choice: int


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
