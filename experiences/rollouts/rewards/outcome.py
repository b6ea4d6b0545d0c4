"""The outcome reward: what the environment's scorer says, paid at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from experiences.rollouts.options import checked_options, flag_option
from experiences.rollouts.rewards.base import Payment, rewards
from experiences.rollouts.types import Trajectory


@dataclass(frozen=True, slots=True)
class OutcomeReward:
    """Pays the score in [0, 1], or 1 and 0 for success and failure when ``partial_credit`` is off."""

    partial_credit: bool = True

    def __call__(self, trajectory: Trajectory) -> Payment:
        amount = trajectory.outcome if self.partial_credit else float(trajectory.success)
        steps = [0.0] * len(trajectory.steps)
        if steps:
            steps[-1] = amount
        return Payment(steps, {"outcome": amount})


@dataclass(frozen=True)
class OutcomeFactory:
    description: ClassVar[str] = "The environment's score of the answer, and nothing else."
    option_help: ClassVar[Mapping[str, str]] = {
        "partial_credit": "Pay the score as it is (true, the default), or 1 for success and 0 for anything else."
    }

    def __call__(self, options: Mapping[str, Any]) -> OutcomeReward:
        checked_options("reward outcome", options, self.option_help)
        return OutcomeReward(partial_credit=flag_option("reward outcome", options, "partial_credit", True))


rewards.register("outcome")(OutcomeFactory())
