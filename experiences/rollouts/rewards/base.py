"""Reward: pays each step of a finished trajectory, and names the parts of the sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, overload, runtime_checkable

from agentcore_site.lib.registry import Registry
from experiences.rollouts.environments.scorers import Rubric
from experiences.rollouts.options import Option, described, help_of, read_options
from experiences.rollouts.types import Trajectory

VERDICT: Final = "verdict"


@dataclass(slots=True)
class Payment:
    """``steps[t]`` is paid for step t (as many as the trajectory has); ``components`` names the parts.

    The trajectory's reward is the sum of the components; the steps' payments add up to the same number wherever
    there is a step that can take them. ``evidence`` (JSON values) says how it was arrived at and is kept under
    ``trajectory.evidence["reward"]``. ``unscored`` says why there is no reward (yet): the trajectory leaves its
    group's baseline without being an error. ``before`` is what a reward that ranks a group would have paid without it.
    """

    steps: list[float]
    components: dict[str, float] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    unscored: str = ""
    before: float | None = None

    @classmethod
    def at_the_end(
        cls, trajectory: Trajectory, components: dict[str, float], evidence: dict[str, Any] | None = None
    ) -> Payment:
        """Everything at the last step."""
        steps = [0.0] * len(trajectory.steps)
        if steps:
            steps[-1] = math.fsum(components.values())
        return cls(steps, components, evidence or {})


@dataclass(frozen=True, slots=True)
class FailurePay:
    """Pay of a rollout that did not end by itself, instead of all other parts.

    ``timeout``: for running out of time, which is the agent's doing. ``failure``: for an error of the
    environment or the model; None leaves it unscored (NaN), so that it leaves its group's baseline.
    """

    timeout: float = -1.0
    failure: float | None = None


FAILURE_OPTIONS: Final[Mapping[str, Option]] = {
    "timeout": Option("The reward of a rollout that ran out of time, instead of all else; usually -1.", -1.0, -10, 10),
    "failure": Option(
        "The reward of a rollout that failed otherwise; left out, such a rollout is not scored at all.", None, -10, 10
    ),
}


class RewardTimedOut(Exception):
    """The reward ran out of time. That says nothing about the rollout, and the next one would fare no better."""


class Reward(Protocol):
    """Pays a trajectory that ended without an error. May raise: then the trajectory is marked, not the job; but
    ``TimeoutError`` halts the run.

    A reward may carry a ``failures: FailurePay`` attribute to pay failed rollouts in its own way, and, if it asks a
    service, ``timeout_seconds: float``: it is then called in a thread, and halts the run when a call takes longer.
    """

    def __call__(self, trajectory: Trajectory) -> Payment: ...


@runtime_checkable
class GroupReward(Protocol):
    """A reward that needs the siblings: it pays a second time, once a group is complete and before the update.

    ``settle`` must give the same payments for trajectories that were settled before, or that came back from storage:
    after a crash a group is settled again. What was paid before stays beside the reward
    (``Trajectory.reward_before_ranking``).
    """

    def __call__(self, trajectory: Trajectory) -> Payment: ...

    def settle(self, trajectories: Sequence[Trajectory]) -> Sequence[Payment | None]:
        """One payment for each trajectory; None leaves it as it is."""
        ...


@runtime_checkable
class LearningReward(Protocol):
    """A reward with memory of earlier iterations. The memory is fixed during an iteration, so that siblings are
    measured alike; ``learn`` gets an iteration's trajectories, in order, after its update."""

    def __call__(self, trajectory: Trajectory) -> Payment: ...

    def learn(self, trajectories: Sequence[Trajectory]) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        """JSON values and arrays, for the checkpoint."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what ``state_dict`` gave; an empty one is that of a checkpoint from before there was any."""
        ...


class JudgedReward(Protocol):
    """A reward that wants a language model's verdict on each rollout: by this rubric (None: it wants none after all).

    It is asked for once a rollout has ended, and lies under ``evidence[VERDICT]`` when the reward is called:
    {"score", "success", "judge": {...}}, or with a "judge_error". Where no language model plays, nothing lies there.
    """

    @property
    def rubric(self) -> Rubric | None: ...

    def __call__(self, trajectory: Trajectory) -> Payment: ...


def rubric_of(reward: object) -> Rubric | None:
    """The rubric of a ``JudgedReward``; None for any other. Only the one attribute is checked: this runs for every
    rollout, and a check of the whole protocol takes a fifth of a rollout's own time."""
    return getattr(reward, "rubric", None)


def inspects_code(reward: object) -> bool:
    """True if code in an answer has to be checked before the reward is called: the reward's attribute of this name."""
    return bool(getattr(reward, "inspects_code", False))


def part_weights(reward: object) -> Mapping[str, float]:
    """The weight of each part of a reward, as its attribute of this name says; {} if it says nothing."""
    found: Mapping[str, float] = getattr(reward, "part_weights", {})
    return found


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


Amounts = float | Mapping[str, float] | Payment


@dataclass(frozen=True)
class OptionReward:
    """A factory that reads the options of a reward, and makes it of their values."""

    name: str
    description: str
    options: Mapping[str, Option]
    made_of: Callable[..., Reward]

    @property
    def option_help(self) -> Mapping[str, str]:
        return help_of(self.options)

    def __call__(self, options: Mapping[str, Any]) -> Reward:
        return self.made_of(**read_options(f"reward {self.name}", options, self.options))


def reward_of(
    name: str, description: str, options: Mapping[str, Option]
) -> Callable[[Callable[..., Reward]], RewardFactory]:
    """Registers the decorated function, which makes a reward of the values of its options."""
    return lambda made_of: rewards.register(name)(OptionReward(name, description, options, made_of))


Formula = Callable[..., Amounts]


@overload
def formula(function: Formula, /) -> RewardFactory: ...
@overload
def formula(name: str = "", description: str = "", /, **options: Option) -> Callable[[Formula], RewardFactory]: ...
def formula(function: Any = "", description: str = "", /, **options: Option) -> Any:
    """Registers the decorated function of a trajectory and of the values of options as a reward, by its own name and
    with its docstring as the description. What it returns, an amount or the named parts of one, is paid at the end; a
    ``Payment`` is paid as it is. ``@formula("name", "description")`` gives it other words."""
    if callable(function):
        return formula()(function)

    def register(made: Formula) -> RewardFactory:
        name = function or made.__name__
        words = described(f"reward {name}", made, options, given=1, description=description)

        def made_of(**values: Any) -> Reward:
            def reward(trajectory: Trajectory) -> Payment:
                paid = made(trajectory, **values)
                if isinstance(paid, Payment):
                    return paid
                return Payment.at_the_end(trajectory, {name: paid} if isinstance(paid, (float, int)) else dict(paid))

            return reward

        return reward_of(name, words, options)(made_of)

    return register


def pay(reward: Reward, trajectory: Trajectory) -> None:
    """Writes the reward, its components, its evidence and each step's share into ``trajectory``.

    A reward that raises, or that is not a finite number, leaves the trajectory unscored (NaN) with an error
    "reward: ..." and nothing else changed. Where a judge gave no verdict ("judge_error" in the evidence) there is
    nothing to score: NaN, without an error.

    Raises:
        RewardTimedOut: the reward raised ``TimeoutError``.
    """
    if trajectory.error:
        _pay_failure(getattr(reward, "failures", FailurePay()), trajectory)
        return
    if trajectory.evidence.get("judge_error"):
        _leave_out(trajectory, {"unscored": "the judge gave no verdict"})
        return
    try:
        _write(trajectory, reward(trajectory))
    except TimeoutError as error:
        raise RewardTimedOut(str(error) or "it raised TimeoutError") from error
    except Exception as error:  # a reward's bug marks the trajectory, not the job
        _mark(trajectory, error)


def settle(reward: Reward, trajectories: Sequence[Trajectory]) -> None:
    """The second payment of a complete group; nothing happens where the reward is no ``GroupReward``.

    A reward that raises here leaves the whole group unscored, each with its error.

    Raises:
        RewardTimedOut: the reward raised ``TimeoutError``.
    """
    if not isinstance(reward, GroupReward):
        return
    try:
        payments = reward.settle(trajectories)
        for trajectory, payment in zip(trajectories, payments, strict=True):
            if payment is not None:
                alone = trajectory.reward if math.isfinite(trajectory.reward) else payment.before
                _write(trajectory, payment)
                if not trajectory.ranked:
                    trajectory.ranked, trajectory.reward_before_ranking = True, alone
    except TimeoutError as error:
        raise RewardTimedOut(str(error) or "it raised TimeoutError") from error
    except Exception as error:  # as in ``pay``
        for trajectory in trajectories:
            if not trajectory.error:
                trajectory.ranked = True
                _mark(trajectory, error)


def _write(trajectory: Trajectory, payment: Payment) -> None:
    """Raises ValueError, and changes nothing, where the payment can't be paid."""
    if payment.unscored:
        _leave_out(trajectory, {**payment.evidence, "unscored": payment.unscored})
        return
    if len(payment.steps) != len(trajectory.steps):
        raise ValueError(f"paid {len(payment.steps)} steps of {len(trajectory.steps)}")
    total = math.fsum(payment.components.values())
    if not math.isfinite(total) or not all(map(math.isfinite, payment.steps)):
        raise ValueError("the reward is not a finite number")
    trajectory.reward = total
    trajectory.components = payment.components
    if payment.evidence:
        trajectory.evidence = {**trajectory.evidence, "reward": payment.evidence}
    for step, amount in zip(trajectory.steps, payment.steps, strict=True):
        step.reward = amount


def _leave_out(trajectory: Trajectory, evidence: dict[str, Any]) -> None:
    trajectory.reward, trajectory.components = math.nan, {}
    trajectory.evidence = {**trajectory.evidence, "reward": evidence}
    for step in trajectory.steps:
        step.reward = 0.0


def _mark(trajectory: Trajectory, error: Exception) -> None:
    trajectory.error = f"reward: {type(error).__name__}: {error}"
    trajectory.reward = math.nan


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
