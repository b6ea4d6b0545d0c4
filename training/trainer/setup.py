"""What a training run is given, and what it reports."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from experiences.environments.base import Environment
from experiences.rewards import Reward, rewards
from experiences.rollout import RolloutLimits
from experiences.runtimes.action import ActionRuntime
from experiences.runtimes.base import Runtime
from experiences.types import RolloutKey, Scenario, Trajectory, TrajectoryGroup
from training.config import GRPOConfig


class Acting(Protocol):
    """Makes the runtime by which a policy plays its rollouts. ``purpose`` ("training", or what is looked at and
    when) names the work for runtimes whose calls are paid for: the same call is never made twice under one name."""

    def __call__(self, policy: Any, *, temperature: float, max_steps: int, purpose: str) -> Runtime: ...


def by_choice(policy: Any, *, temperature: float, max_steps: int, purpose: str = "training") -> Runtime:
    """An action policy chooses among the environment's actions."""
    return ActionRuntime(policy, max_steps, temperature)


async def _nothing_to_close() -> None:
    """The default ``closing``."""


Kept = Callable[[int], Mapping[RolloutKey, Trajectory]]
Keep = Callable[[Trajectory], None]
Check = Callable[[], None]


@dataclass
class TrainerSetup:
    """Everything that stays the same during a run. ``train`` and ``selection`` share no text; each scenario's
    ``index`` is unique within its list. Policy versions are named ``policy_version_prefix`` + iteration.
    ``policy_kind`` is "action" or "frozen"; ``model`` is the language model behind the policy, "" for none;
    ``closing`` is awaited when the work ends, in the loop in which it was done; ``new_loop`` makes that loop (None:
    the standard one)."""

    config: GRPOConfig
    seed: int
    environment: Environment
    train: Sequence[Scenario]
    selection: Sequence[Scenario]
    policy_version_prefix: str = ""
    policy_kind: str = "action"
    acting: Acting = by_choice
    model: str = ""
    closing: Callable[[], Coroutine[Any, Any, None]] = _nothing_to_close
    new_loop: Callable[[], AbstractEventLoop] | None = None

    def version(self, iteration: int) -> str:
        return f"{self.policy_version_prefix}{iteration}"

    def limits(self) -> RolloutLimits:
        config = self.config
        return RolloutLimits(config.max_steps, config.rollout_timeout_seconds, config.max_concurrent_rollouts)

    def reward(self) -> Reward:
        """The configured reward, given those of the shaping options that it knows, and its own options.

        Raises:
            UnknownName, ValueError: there is no such reward, or it refuses its options.
        """
        factory = rewards.get(self.config.reward)
        options = {**self.config.shaping.model_dump(), "gamma": self.config.gamma}
        known = {name: value for name, value in options.items() if name in factory.option_help}
        return factory(known | self.config.reward_options)


@dataclass
class SelectionReport:
    """One evaluation on the selection queries, against the policy the run began with, on the same queries with
    the same seeds. Rates lie in [0, 1]; ``low`` and ``high`` are the 95 % Wilson interval of the success rate."""

    iteration: int
    n_queries: int
    samples: int
    success_rate: float
    low: float
    high: float
    baseline_success_rate: float
    improvement: float
    improvement_low: float
    improvement_high: float
    p_value: float
    mean_steps: float
    mean_reward: float


@dataclass
class IterationReport:
    """One applied iteration. ``groups`` carry their advantages; ``baseline`` is set on the first iteration only:
    the evaluation of the policy the run began with."""

    iteration: int
    groups: list[TrajectoryGroup]
    metrics: dict[str, float]
    warnings: list[str] = field(default_factory=list)
    selection: SelectionReport | None = None
    baseline: SelectionReport | None = None
    stop_reason: str = ""
    rollout_seconds: float = 0.0
    update_seconds: float = 0.0
