"""The composite reward: completion, efficiency, code quality and user feedback, each on its own trailing scale.

Group centring cancels a component's mean; what is left of its z-score is weight / sigma, so that a component counts by
its weight and not by how far its numbers happen to lie apart (docs/algorithms.md#rewards).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from experiences.rollouts.options import Option
from experiences.rollouts.rewards import signals
from experiences.rollouts.rewards.base import FAILURE_OPTIONS, FailurePay, Payment, reward_of
from experiences.rollouts.rewards.effort import CAP, SHARES, UsualEffort, efforts
from experiences.rollouts.rewards.window import Window
from experiences.rollouts.types import Trajectory

WEIGHTS: Final[Mapping[str, float]] = {"completion": 0.40, "efficiency": 0.20, "code_quality": 0.15, "feedback": 0.25}
WINDOW: Final = 1000
FLOOR: Final = 0.05  # of a component's range, which is 1
EPSILON: Final = 1e-8  # of the design, in the place of the floor


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
    shares: Mapping[str, float] = field(default_factory=lambda: dict(SHARES))
    _seen: dict[str, Window] = field(init=False)
    _usual: UsualEffort = field(init=False)

    def __post_init__(self) -> None:
        self._seen = {name: Window(self.window) for name in WEIGHTS}
        self._usual = UsualEffort(self.window)

    @property
    def inspects_code(self) -> bool:
        return self.weights["code_quality"] > 0

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
            "measured": {
                "completion": True,
                "efficiency": raw["efficiency"] is not None,
                "code_quality": raw["code_quality"] is not None,
                "feedback": "feedback" in trajectory.evidence,
            },
            **efforts(trajectory),
            "usual": self._usual.means(trajectory),
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
            "efficiency": self._usual.efficiency(trajectory, self.shares),
            "code_quality": signals.code_quality(trajectory.evidence),
            "feedback": signals.feedback(trajectory.evidence),
        }

    def _normalised(self, name: str, value: float | None) -> float:
        scale = self._seen[name].scale
        if not scale.enough:
            return scale.mean if value is None else value
        return 0.0 if value is None else scale.z(value, FLOOR)

    # -- what came before ------------------------------------------------------------------------------------------

    def learn(self, trajectories: Sequence[Trajectory]) -> None:
        """Adds an iteration. Everything is measured on the scales that it was paid by before any of them moves."""
        scored = [
            trajectory for trajectory in trajectories if not trajectory.error and math.isfinite(trajectory.reward)
        ]
        measured = [self._raw(trajectory) for trajectory in scored]
        for name, window in self._seen.items():
            window.add(value for raw in measured if (value := raw[name]) is not None)
        self._usual.learn(scored)

    def state_dict(self) -> dict[str, Any]:
        return {f"seen/{name}": window.values for name, window in self._seen.items()} | self._usual.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.__post_init__()
        if not state:
            return
        for name, window in self._seen.items():
            window.add(state[f"seen/{name}"].tolist())
        self._usual.load_state_dict(state)


@dataclass(slots=True)
class DesignReward(CompositeReward):
    """The composite by the letter of the feedback loop's design: partial completion is .5 + .5 x its share, efficiency
    counts turns alone, stars are n / 5, and a z-score divides by the deviation + 1e-8, from the first observation on.
    A component that never changed explodes when it does: a floor, as ``CompositeReward`` has one, is not in the design.
    """

    def _raw(self, trajectory: Trajectory) -> dict[str, float | None]:
        outcome = signals.share(trajectory.outcome)
        if outcome is None:
            raise ValueError(f"the outcome {trajectory.outcome!r} is not in [0, 1]")
        return {
            "completion": 1.0 if trajectory.success else 0.5 + 0.5 * outcome if outcome else 0.0,
            "efficiency": self._turns(trajectory),
            "code_quality": signals.code_quality_by_design(trajectory.evidence),
            "feedback": signals.feedback(trajectory.evidence, one_star=1 / signals.STARS),
        }

    def _turns(self, trajectory: Trajectory) -> float | None:
        """None until there is an average: a first .5 for all would be a scale without deviation."""
        scale = self._usual.scale(trajectory, "turns")
        if not scale.n:
            return None
        z = (scale.mean - len(trajectory.steps)) / (scale.std or EPSILON)
        return (min(max(z, -CAP), CAP) + CAP) / (2 * CAP)

    def _normalised(self, name: str, value: float | None) -> float:
        scale = self._seen[name].scale
        if value is None:
            return 0.0
        return (value - scale.mean) / (scale.std + EPSILON) if scale.n else value


HELP: Final = {
    "completion": "Weight of the environment's score; 0.40 by default.",
    "efficiency": "Weight of taking less than usual for the type of task (a row's metadata may name it as"
    " task_type; else it is the scorer); 0.20 by default.",
    "code_quality": "Weight of what ruff, bandit and the row's own tests (its metadata's tests) say of Python in the"
    " answer, or of what the environment's evidence says; 0.15 by default, 0 runs nothing. Without code it makes no"
    " difference.",
    "feedback": "Weight of thumbs, stars and implicit feedback; 0.25 by default. In training they come from the"
    " evidence of an environment of yours.",
}
SHARE_HELP: Final = {
    "turns": "Share of the number of turns in efficiency; 0.4 by default.",
    "seconds": "Share of the steps' seconds in efficiency; 0.2 by default. Counted for language models only.",
    "tokens": "Share of the tokens in efficiency; 0.2 by default.",
    "redundant_calls": "Share of calls that repeat an earlier one with the same result in efficiency; 0.2 by default.",
}
SHARE: Final = "efficiency_"
FORMULAS: Final = ("agentcore", "feedback_loop")
OPTIONS: Final[Mapping[str, Option]] = {
    **{name: Option(HELP[name], weight, 0, 10) for name, weight in WEIGHTS.items()},
    **{SHARE + name: Option(SHARE_HELP[name], share, 0, 10) for name, share in SHARES.items()},
    "formulas": Option(
        "agentcore (default), or feedback_loop: those of the feedback loop's design by its letter (turns alone, stars"
        " n / 5, no floor of the deviation).",
        choices=FORMULAS,
    ),
    "window": Option("How many trailing observations make the scale; 1,000 by default.", WINDOW, 30, 100_000),
    **FAILURE_OPTIONS,
}


@reward_of(
    "composite",
    "Completion, efficiency, code quality and user feedback, each measured against the trailing 1,000 trajectories.",
    OPTIONS,
)
def composite(formulas: str, window: int, timeout: float, failure: float | None, **given: float) -> CompositeReward:
    weights = {name: given[name] for name in WEIGHTS}
    if not any(weights.values()):
        raise ValueError("reward composite: completion, efficiency, code_quality and feedback must not all be 0.")
    shares = {name: given[SHARE + name] for name in SHARES}
    if not any(shares.values()):
        raise ValueError("reward composite: the shares of efficiency must not all be 0.")
    made = CompositeReward if formulas == FORMULAS[0] else DesignReward
    return made(weights, window, FailurePay(timeout, failure), shares)
