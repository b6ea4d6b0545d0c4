"""What a reward is: it pays each step of a finished trajectory, and names the parts of the sum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentcore_site.registry import Registry
from experiences.types import Trajectory


@dataclass(slots=True)
class Payment:
    """``steps[t]`` is paid for step t (as many as the trajectory has); ``components`` names the parts.

    The trajectory's reward is the sum of the components; the steps' payments add up to the same number wherever
    there is a step that can take them.
    """

    steps: list[float]
    components: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FailurePay:
    """What a rollout that did not end by itself is paid, instead of everything else.

    ``timeout``: for running out of time, which is the agent's doing (A7). ``failure``: for an error of the
    environment or the model; None leaves it unscored (NaN), so that it leaves its group's baseline.
    """

    timeout: float = -1.0
    failure: float | None = None


class Reward(Protocol):
    """Pays a trajectory that ended without an error. May raise: then the trajectory is marked, not the job.

    A reward may carry a ``failures: FailurePay`` attribute to pay failed rollouts in its own way.
    """

    def __call__(self, trajectory: Trajectory) -> Payment: ...


class RewardFactory(Protocol):
    """Builds a reward from its options.

    Raises:
        ValueError: an option is unknown or out of range; the message says what to do.
    """

    @property
    def description(self) -> str: ...

    @property
    def option_help(self) -> Mapping[str, str]: ...

    def __call__(self, options: Mapping[str, Any]) -> Reward: ...


rewards: Registry[RewardFactory] = Registry("reward", entry_point_group="agentcore.rewards")


def pay(reward: Reward, trajectory: Trajectory) -> None:
    """Writes the reward, its components and each step's share into ``trajectory``.

    A reward that raises, or that is not a finite number, leaves the trajectory unscored (NaN) with an error
    "reward: ..." and nothing else changed.
    """
    if trajectory.error:
        _pay_failure(getattr(reward, "failures", FailurePay()), trajectory)
        return
    try:
        payment = reward(trajectory)
        if len(payment.steps) != len(trajectory.steps):
            raise ValueError(f"paid {len(payment.steps)} steps of {len(trajectory.steps)}")
        total = math.fsum(payment.components.values())
        if not math.isfinite(total) or not all(map(math.isfinite, payment.steps)):
            raise ValueError("the reward is not a finite number")
    except Exception as error:  # a reward's bug marks the trajectory, not the job (R5)
        trajectory.error = f"reward: {type(error).__name__}: {error}"
        trajectory.reward = math.nan
        return
    trajectory.reward = total
    trajectory.components = payment.components
    for step, amount in zip(trajectory.steps, payment.steps, strict=True):
        step.reward = amount


def _pay_failure(failures: FailurePay, trajectory: Trajectory) -> None:
    timed_out = trajectory.error.startswith("timeout:")
    amount = failures.timeout if timed_out else failures.failure
    if amount is None:
        trajectory.reward = math.nan
        return
    trajectory.reward = amount
    trajectory.components = {"timeout" if timed_out else "failure": amount}
    if trajectory.steps:
        trajectory.steps[-1].reward = amount
