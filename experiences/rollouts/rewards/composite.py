"""The composite reward: completion, efficiency, code quality and user feedback, each on its own trailing scale.

Group centring cancels a component's mean; what is left of its z-score is weight / sigma, so that a component counts by
its weight and not by how far its numbers happen to lie apart (docs/algorithms.md#rewards).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from experiences.rollouts.options import Option
from experiences.rollouts.rewards import signals
from experiences.rollouts.rewards.base import FAILURE_OPTIONS, FailurePay, Payment, reward_of
from experiences.rollouts.rewards.window import Window
from experiences.rollouts.types import Trajectory

WEIGHTS: Final[Mapping[str, float]] = {"completion": 0.40, "efficiency": 0.20, "code_quality": 0.15, "feedback": 0.25}
GIVEN: Final = ("code_quality", "feedback")  # by the environment's evidence, or not at all
WINDOW: Final = 1000
FLOOR: Final = 0.05  # of a component's range, which is 1
CAP: Final = 2.0  # standard deviations of the turns
TURN_FLOOR: Final = 0.5  # turns: less apart than that are all tasks of a type that always take as long
MAX_TYPES: Final = 100  # task types whose turns are remembered


@dataclass(slots=True)
class CompositeReward:
    """The weighted sum of what is known of a trajectory.

    A component is its z-score over the trailing ``window`` observations, in units of at least 5 % of its range; before
    30 were observed it is the component itself. One that is missing is worth its mean (z = 0), and its weight goes to
    no other: siblings with and without it stay comparable. The scales move between iterations only (``learn``).
    The evidence says which components were ``measured``.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: dict(WEIGHTS))
    window: int = WINDOW
    failures: FailurePay = field(default_factory=FailurePay)
    _seen: dict[str, Window] = field(init=False)
    _turns: dict[str, Window] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._seen = {name: Window(self.window) for name in WEIGHTS}

    def __call__(self, trajectory: Trajectory) -> Payment:
        raw = self._raw(trajectory)
        normalised = {name: self._normalised(name, value) for name, value in raw.items()}
        components = {name: self.weights[name] * value for name, value in normalised.items()}
        evidence = {
            "name": "composite",
            "raw": raw,
            "normalised": normalised,
            "weights": dict(self.weights),
            "observed": {name: window.scale.n for name, window in self._seen.items()},
            "measured": {name: name not in GIVEN or name in trajectory.evidence for name in WEIGHTS},
            "turns": len(trajectory.steps),
            "task_type": signals.task_type(trajectory.evidence),
        }
        return Payment.at_the_end(trajectory, components, evidence)

    def _raw(self, trajectory: Trajectory) -> dict[str, float | None]:
        """Each component in [0, 1]; None where there is nothing to measure."""
        completion = signals.share(trajectory.outcome)
        if completion is None:
            raise ValueError(f"the outcome {trajectory.outcome!r} is not in [0, 1]")
        return {
            "completion": completion,
            "efficiency": self._efficiency(trajectory),
            "code_quality": signals.code_quality(trajectory.evidence),
            "feedback": signals.feedback(trajectory.evidence),
        }

    def _efficiency(self, trajectory: Trajectory) -> float:
        """1 for 2 standard deviations fewer turns than the task type's trailing average, 0 for 2 more; .5 until
        there is an average."""
        turns = self._turns.get(signals.task_type(trajectory.evidence))
        if turns is None or not turns.scale.enough:
            return 0.5
        z = turns.scale.z(len(trajectory.steps), TURN_FLOOR)
        return (CAP - min(max(z, -CAP), CAP)) / (2 * CAP)

    def _normalised(self, name: str, value: float | None) -> float:
        scale = self._seen[name].scale
        if not scale.enough:
            return scale.mean if value is None else value
        return 0.0 if value is None else scale.z(value, FLOOR)

    # -- what came before ------------------------------------------------------------------------------------------

    def learn(self, trajectories: Sequence[Trajectory]) -> None:
        """Adds an iteration. Everything is measured on the scales that it was paid by before any of them moves."""
        scored = [one for one in trajectories if not one.error and math.isfinite(one.reward)]
        measured = [self._raw(one) for one in scored]
        for name, window in self._seen.items():
            window.add(value for raw in measured if (value := raw[name]) is not None)
        for one in scored:
            kind = signals.task_type(one.evidence)
            turns = self._turns.pop(kind, None) or Window(self.window)
            turns.add([float(len(one.steps))])
            self._turns[kind] = turns  # at the end: the first is the one that was not seen for longest
        while len(self._turns) > MAX_TYPES:
            del self._turns[next(iter(self._turns))]

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {f"seen/{name}": window.values for name, window in self._seen.items()}
        state["types"] = list(self._turns)
        state["lengths"] = [len(window.values) for window in self._turns.values()]
        state["turns"] = np.concatenate([np.zeros(0), *(window.values for window in self._turns.values())])
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.__post_init__()
        self._turns = {}
        if not state:
            return
        for name, window in self._seen.items():
            window.add(state[f"seen/{name}"].tolist())
        turns, at = state["turns"].tolist(), 0
        for kind, length in zip(state["types"], state["lengths"], strict=True):
            self._turns[kind] = Window(self.window)
            self._turns[kind].add(turns[at : at + length])
            at += length


HELP: Final = {
    "completion": "Weight of the environment's score; 0.40 by default.",
    "efficiency": "Weight of taking fewer turns than usual for the type of task (a row's metadata may name it as"
    " task_type; else it is the scorer); 0.20 by default.",
    "code_quality": "Weight of linter, tests and security findings; 0.15 by default. Nothing here measures them: an"
    " environment of yours puts them into its evidence. Where it does not, they make no difference.",
    "feedback": "Weight of thumbs, stars and implicit feedback; 0.25 by default. Like code_quality, they come from"
    " the evidence of an environment of yours.",
}
OPTIONS: Final[Mapping[str, Option]] = {
    **{name: Option(HELP[name], weight, 0, 10) for name, weight in WEIGHTS.items()},
    "window": Option("How many trailing observations make the scale; 1,000 by default.", WINDOW, 30, 100_000),
    **FAILURE_OPTIONS,
}


@reward_of(
    "composite",
    "Completion, few turns, code quality and user feedback, each measured against the trailing 1,000 trajectories.",
    OPTIONS,
)
def composite(window: int, timeout: float, failure: float | None, **weights: float) -> CompositeReward:
    if not any(weights.values()):
        raise ValueError("reward composite: completion, efficiency, code_quality and feedback must not all be 0.")
    return CompositeReward(weights, window, FailurePay(timeout, failure))
