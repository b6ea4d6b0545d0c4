"""The rule by which a deployment advances: its stages, and when the next one is due. Pure, no Django."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, Self

MOST_STAGES: Final = 10
MOST_MINUTES: Final = 60 * 24 * 14
MOST_SESSIONS: Final = 1_000_000
MARGIN: Final = 0.05
HOUR: Final = 60.0
YOU: Final = "you"  # a person has to decide


class WhenOver(StrEnum):
    """Action at the end of a stage's patience, if the release is not shown to be non-inferior."""

    ASK = "ask"
    PROMOTE = "promote"


MEASURES: Final = {"failures": "failures", "score": "scores"}


@dataclass(frozen=True, slots=True)
class Stage:
    """``share`` of the sessions for at least ``minutes``, and until ``sessions`` of them were counted."""

    share: float
    minutes: float = 10.0
    sessions: int = 50


@dataclass(frozen=True, slots=True)
class DeploymentRule:
    """The stages of a canary, after which the release gets all sessions; a shadow uses the share of the first stage.
    ``feedback_minutes``: when the reward of a session joins the evidence. ``watch_minutes``: how long a blue-green
    deployment is watched after its switch. ``budget_micros``: the limit of a shadow's cost, in micro-dollars.
    ``margin``: a canary advances only when its release is shown to be worse by less than this
    (``serving.monitoring.non_inferiority``); None: by time and sessions alone. ``patience_minutes`` after the begin of
    a stage ``when_over`` applies instead. Raises ValueError: a value is out of its range; the message names it.
    """

    stages: tuple[Stage, ...] = (Stage(0.10), Stage(0.25), Stage(0.50))
    feedback_minutes: float = 10.0
    watch_minutes: float = 30.0
    budget_micros: int = 5_000_000
    margin: float | None = MARGIN
    patience_minutes: float = 24 * HOUR
    when_over: str = WhenOver.ASK

    def __post_init__(self) -> None:
        if not 1 <= len(self.stages) <= MOST_STAGES:
            raise ValueError(f"A deployment has 1 to {MOST_STAGES} stages.")
        shares = [stage.share for stage in self.stages]
        if any(not 0 < share < 1 for share in shares) or any(b <= a for a, b in pairwise(shares)):
            raise ValueError("The stages' shares rise, and lie between 0 and 100 %.")
        if self.budget_micros < 0:
            raise ValueError("A budget is not negative.")
        if self.margin is not None and not 0 < self.margin < 1:
            raise ValueError("A margin lies between 0 and 100 points.")
        if self.when_over not in list(WhenOver):
            raise ValueError(f"When the patience is over: {' or '.join(WhenOver)}.")
        minutes = [stage.minutes for stage in self.stages]
        minutes += [self.feedback_minutes, self.watch_minutes, self.patience_minutes]
        if any(not 0 <= minute <= MOST_MINUTES or math.isnan(minute) for minute in minutes):
            raise ValueError(f"Minutes lie between 0 and {MOST_MINUTES:,}.")
        if any(not 1 <= stage.sessions <= MOST_SESSIONS for stage in self.stages):
            raise ValueError(f"A stage waits for 1 to {MOST_SESSIONS:,} sessions.")

    @classmethod
    def canary(cls, shares: Sequence[float], minutes: float, sessions: int, **others: Any) -> Self:
        """Stages that differ in their share alone; ``others`` are its further fields."""
        return cls(tuple(Stage(share, minutes, sessions) for share in shares), **others)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        # A rule that was stored before margins existed has none.
        others = {"margin": None} | {name: value for name, value in stored.items() if name != "stages"}
        return cls(tuple(Stage(**stage) for stage in stored["stages"]), **others)

    def waits_for(self, step: int, *, minutes: float, sessions: int, unshown: Sequence[str] = ()) -> str:
        """The conditions that a stage still waits for, after ``minutes`` and counted ``sessions`` of the new release;
        ``unshown`` are the measures without proof of non-inferiority. "" if the stage is over, ``YOU`` if a person has
        to decide."""
        stage = self.stages[step]
        missing = []
        if minutes < stage.minutes:
            missing.append(f"{_minutes(stage.minutes - minutes)} more")
        if sessions < stage.sessions:
            missing.append(f"{stage.sessions - sessions:,} more of {stage.sessions:,} sessions of the new release")
        if not missing and self.margin is not None and unshown:
            if minutes >= self.patience_minutes:
                return YOU if self.when_over == WhenOver.ASK else ""
            names = " and ".join(MEASURES[name] for name in unshown)
            missing.append(f"evidence that {names} are no worse by more than {self.margin * 100:g} points")
        return " and ".join(missing)


def _minutes(minutes: float) -> str:
    return f"{math.ceil(minutes * 60)} s" if minutes < 2 else f"{math.ceil(minutes)} min"
