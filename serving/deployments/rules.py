"""How a deployment goes on by itself: its stages, and when the next one is due. Pure, no Django."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final, Self

MOST_STAGES: Final = 10
MOST_MINUTES: Final = 60 * 24 * 14
MOST_SESSIONS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Stage:
    """``share`` of the sessions for at least ``minutes``, and until ``sessions`` of them were counted."""

    share: float
    minutes: float = 10.0
    sessions: int = 50


@dataclass(frozen=True, slots=True)
class DeploymentRule:
    """The stages of a canary, after which the release gets all; the first one's share is that of a shadow.

    ``feedback_minutes``: when the reward of a session is taken into the evidence. ``watch_minutes``: how long a
    blue-green deployment is watched after its switch. ``budget_micros``: what the answers of a shadow may cost, in
    micro-dollars. Raises ValueError: a value is out of its range; it says which.
    """

    stages: tuple[Stage, ...] = (Stage(0.10), Stage(0.25), Stage(0.50))
    feedback_minutes: float = 10.0
    watch_minutes: float = 30.0
    budget_micros: int = 5_000_000

    def __post_init__(self) -> None:
        if not 1 <= len(self.stages) <= MOST_STAGES:
            raise ValueError(f"A deployment has 1 to {MOST_STAGES} stages.")
        shares = [one.share for one in self.stages]
        if any(not 0 < one < 1 for one in shares) or any(b <= a for a, b in pairwise(shares)):
            raise ValueError("The stages' shares rise, and lie between 0 and 100 %.")
        if self.budget_micros < 0:
            raise ValueError("A budget is not negative.")
        minutes = [*(one.minutes for one in self.stages), self.feedback_minutes, self.watch_minutes]
        if any(not 0 <= one <= MOST_MINUTES or math.isnan(one) for one in minutes):
            raise ValueError(f"Minutes lie between 0 and {MOST_MINUTES:,}.")
        if any(not 1 <= one.sessions <= MOST_SESSIONS for one in self.stages):
            raise ValueError(f"A stage waits for 1 to {MOST_SESSIONS:,} sessions.")

    @classmethod
    def canary(cls, shares: Sequence[float], minutes: float, sessions: int, feedback_minutes: float = 10.0) -> Self:
        """Stages that differ in their share alone."""
        return cls(tuple(Stage(share, minutes, sessions) for share in shares), feedback_minutes)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        stages = tuple(Stage(**one) for one in stored["stages"])
        return cls(stages, stored["feedback_minutes"], stored["watch_minutes"], stored["budget_micros"])

    def waits_for(self, step: int, *, minutes: float, sessions: int) -> str:
        """What a stage still waits for after so many minutes and counted sessions of the new release; "" if it is
        over."""
        stage = self.stages[step]
        missing = []
        if minutes < stage.minutes:
            missing.append(f"{_minutes(stage.minutes - minutes)} more")
        if sessions < stage.sessions:
            missing.append(f"{stage.sessions - sessions:,} more of {stage.sessions:,} sessions of the new release")
        return " and ".join(missing)


def _minutes(minutes: float) -> str:
    return f"{math.ceil(minutes * 60)} s" if minutes < 2 else f"{math.ceil(minutes)} min"
