"""Sums of an agent's earlier runs about its lessons, from which the estimates of its next run begin.

Sums of rollouts can be added (``effects``), so what was paid for once counts again: as much as on the day it was
measured, or less where the agent has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from experiences.learning.lessons.library import Library
from training.policies.context import ContextPolicy
from training.policies.effects import Effects


@dataclass(frozen=True)
class PriorEstimates:
    """The sums of K lessons, by their ``handles`` and the ``versions`` of their texts."""

    handles: tuple[str, ...]
    versions: tuple[int, ...]
    effects: Effects

    @classmethod
    def of(cls, policy: ContextPolicy) -> Self:
        """The estimates of a run at its end."""
        lessons = policy.library.lessons
        return cls(
            tuple(lesson.handle for lesson in lessons), tuple(lesson.version for lesson in lessons), policy.effects
        )

    def only(self, library: Library) -> PriorEstimates:
        """The estimates for this library's lessons, each with its current text."""
        position = {one: at for at, one in enumerate(zip(self.handles, self.versions, strict=True))}
        same = [position[name] for lesson in library if (name := (lesson.handle, lesson.version)) in position]
        return PriorEstimates(
            tuple(self.handles[at] for at in same),
            tuple(self.versions[at] for at in same),
            self.effects.of_lessons(same),
        )

    def within(self, library: Library) -> Effects:
        """The sums in the library's order (K,); nothing is known of lessons that were not measured."""
        found, known = Effects(), self.only(library)
        found.grow(len(library))
        places = [library.position[handle] for handle in known.handles]
        found.gram[np.ix_(places, places)] = known.effects.gram
        found.moment[places] = known.effects.moment
        found.rollouts[places] = known.effects.rollouts
        found.square, found.free = known.effects.square, known.effects.free
        return found

    def weighed(self, weight: float) -> PriorEstimates:
        """The sums as if only this share of the rollouts had been made."""
        return PriorEstimates(self.handles, self.versions, self.effects.weighed(weight))

    def as_json(self) -> dict[str, Any]:
        sums = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in self.effects.state_dict().items()
        }
        return {"handles": list(self.handles), "versions": list(self.versions), "effects": sums}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The estimates in a result of ``as_json``."""
        k, sums = len(value["handles"]), dict(value["effects"])
        sums["gram"] = np.reshape(sums["gram"], (k, k))
        return cls(tuple(value["handles"]), tuple(value["versions"]), Effects.from_state_dict(sums))
