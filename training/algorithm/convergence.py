"""Early stopping, and warnings about a run (docs/algorithms.md#convergence)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Final

EQUAL_ERROR: Final = 0.001  # probability that a run whose groups differ often enough stops as if they didn't


@dataclass(slots=True)
class EarlyStopper:
    """Stops after ``patience`` evaluations in a row without a gain of more than ``min_delta`` standard errors
    over the best score so far. Scores are "higher is better"."""

    patience: int = 5
    min_delta: float = 1.0
    best: float = -math.inf
    waited: int = 0

    def update(self, score: float, standard_error: float) -> bool:
        """Takes one evaluation in; True when it is time to stop. A score that is not finite counts as no gain."""
        if math.isfinite(score) and score > self.best + self.min_delta * standard_error:
            self.best, self.waited = score, 0
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)


def groups_until_stop(total: int, least_mixed: float, error: float = EQUAL_ERROR) -> int:
    """The length of a row of groups with equal rewards at which a run of ``total`` groups may stop: the shortest with
    (1 - q)^n (1 + (total - n) q) <= ``error``, q = ``least_mixed``.

    A row of n can begin at the first group, or after one of the ``total`` - n others whose rewards differ. So a run in
    which each group's rewards differ with a probability of at least q stops by chance in at most this share of cases.
    More than ``total``: such a run never stops by this rule.
    """
    if least_mixed <= 0:
        return total + 1
    for n in range(1, total + 1):
        if (1 - least_mixed) ** n * (1 + (total - n) * least_mixed) <= error:
            return n
    return total + 1


@dataclass(frozen=True, slots=True)
class Vitals:
    """Figures that the guard checks after each update."""

    success_rate: float
    reward_mean: float
    steps_mean: float
    entropy: float
    approx_kl: float
    loss: float
    grad_norm: float


@dataclass(slots=True)
class CollapseGuard:
    """Warns of entropy collapse, of giving up, of reward farming and of divergence.

    It compares moving averages (weight ``smoothing`` on the past) with those of about ``1 / (1 - smoothing)``
    updates ago, so that one odd batch raises nothing.
    """

    target: float = 0.9
    smoothing: float = 0.95
    max_kl: float = 0.2
    initial_entropy: float = math.nan
    updates: int = 0
    fast: dict[str, float] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)

    def update(self, vitals: Vitals) -> list[str]:
        """Takes one update's figures in; the warnings it raises, in words."""
        if not (math.isfinite(vitals.loss) and math.isfinite(vitals.grad_norm)):
            return ["Divergence: the loss or its gradient is not finite; this step was skipped."]
        if math.isnan(self.initial_entropy):
            self.initial_entropy = vitals.entropy
        self._track(vitals)
        warnings = []
        if vitals.approx_kl > self.max_kl:
            warnings.append(f"Divergence: one update moved the policy by a KL of {vitals.approx_kl:.2f}.")
        if self.updates >= 2.0 / (1.0 - self.smoothing):
            warnings += self._trends()
        return warnings

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def _track(self, vitals: Vitals) -> None:
        self.updates += 1
        for name in ("success_rate", "reward_mean", "steps_mean", "entropy"):
            value = float(getattr(vitals, name))
            if not math.isfinite(value):
                continue
            fast = self.fast.setdefault(name, value)
            self.fast[name] = self.smoothing * fast + (1 - self.smoothing) * value
            slow = self.slow.setdefault(name, value)
            self.slow[name] = self.smoothing * slow + (1 - self.smoothing) * self.fast[name]

    def _trends(self) -> list[str]:
        fast, slow = self.fast, self.slow
        success = fast.get("success_rate", 0.0)
        flat = abs(success - slow.get("success_rate", 0.0)) < 0.01
        steps, before = fast.get("steps_mean", 0.0), slow.get("steps_mean", 0.0)
        warnings = []
        if fast.get("entropy", 0.0) < 0.05 * self.initial_entropy and success < self.target:
            warnings.append(f"Collapse: almost no exploration is left at a success rate of {100 * success:.0f} %.")
        if flat and success < self.target and steps < 0.9 * before:
            warnings.append("Giving up: episodes get shorter while success does not rise.")
        if flat and steps > 1.1 * before and fast.get("reward_mean", 0.0) > slow.get("reward_mean", 0.0) + 0.01:
            warnings.append("Reward farming: episodes get longer and reward rises while success does not.")
        return warnings
