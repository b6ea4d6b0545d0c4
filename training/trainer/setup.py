"""Inputs and reports of the trainer."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from experiences.learning.lessons.library import Library
from experiences.learning.lessons.reflection import Reflected
from experiences.learning.lessons.removed import NOTHING, RemovedLessons
from experiences.rollouts.collect import RolloutLimits, RolloutPlan
from experiences.rollouts.environments.base import Environment
from experiences.rollouts.own_weights import WeightsTrainer
from experiences.rollouts.rewards import Reward, rewards
from experiences.rollouts.runtimes.action import ActionRuntime
from experiences.rollouts.runtimes.base import Runtime
from experiences.rollouts.types import RolloutKey, Scenario, Trajectory, TrajectoryGroup
from training.policies.base import Policy
from training.policies.prior_estimates import PriorEstimates
from training.policies.query_rule import QueryRule
from training.policies.query_vectors import QueryVectors
from training.schema import GRPOConfig
from training.splits import search_size

if TYPE_CHECKING:
    from training.learners.base import Learner


class RuntimeMaker(Protocol):
    """Makes the runtime by which a policy plays its rollouts. ``purpose`` ("training", or what is looked at and
    when) names the work for runtimes whose calls are paid for: the same call is never made twice under one name."""

    def __call__(self, policy: Any, *, temperature: float, max_steps: int, purpose: str) -> Runtime: ...


def by_choice(policy: Any, *, temperature: float, max_steps: int, purpose: str = "training") -> Runtime:
    """An action policy chooses among the environment's actions."""
    return ActionRuntime(policy, max_steps, temperature)


async def _nothing_to_close() -> None:
    """The default ``closing``."""


class Reflecting(Protocol):
    """Asks what groups of rollouts teach (``experiences.learning.lessons.reflection``)."""

    async def reflect(
        self, groups: Sequence[TrajectoryGroup], library: Library, *, iteration: int, epoch: int
    ) -> Reflected:
        """Raises:
        Halted: a question can't be paid for now, or the model is away; what was answered is kept.
        """
        ...


class RolloutStore(Protocol):
    """Keeps a run's rollouts as they end, so that a resumed run plays none twice. Iterations count from 1."""

    def stored(self, iteration: int) -> Mapping[RolloutKey, Trajectory]:
        """Rollouts of a training iteration that an earlier attempt stored. They are used and not played again, and
        give the same update bit for bit."""
        return {}

    def store(self, trajectory: Trajectory) -> Awaitable[None] | None:
        """Takes each new rollout of training as it ends. The next one begins when a returned awaitable is done.

        Raises:
            Any exception ends the iteration, as one of ``check`` does.
        """
        return None

    def stored_validation(self, at: int) -> Mapping[RolloutKey, Trajectory]:
        """Rollouts of the validations after iteration ``at`` (0: of the baseline), those of the search included."""
        return {}

    def store_validation(self, at: int, trajectory: Trajectory) -> Awaitable[None] | None:
        """Takes each new rollout of a validation after iteration ``at``, as ``store`` does for training."""
        return None

    def check(self) -> None:
        """Called before each step of a rollout.

        Raises:
            Any exception interrupts the run. The state stays as it was after the last yielded iteration, apart from
            its baseline evaluation.
        """
        return None


class NothingStored(RolloutStore):
    """For runs whose rollouts are free: an interrupted one plays them again."""


@lru_cache(maxsize=1)  # of the run that the process works on; ``replace`` makes a second setup of it
def _query_vectors(queries: tuple[str, ...]) -> QueryVectors:
    return QueryVectors.fitted(queries)


@dataclass(frozen=True)
class TrainerSetup:
    """Inputs of a run, fixed while it lasts. ``train`` and ``selection`` share no text; each scenario's
    ``index`` is unique within its list. Policy versions are named ``policy_version_prefix`` + iteration.
    ``learner`` is the kind of policy that learns; ``model`` is the language model behind the policy, "" for none;
    ``closing`` is awaited when the work ends, in the loop in which it was done; ``new_loop`` makes that loop (None:
    the standard one).

    ``start`` loads the policy that the run goes on from, its baseline; None: an untrained one.

    For a context policy, ``library`` is what the run starts from, with the ``weights`` of earlier runs by handle;
    ``known`` are the estimates of those runs; ``rule`` chooses for each query, if one of them shipped a rule;
    ``slots`` is how many experiences the agent's prompt has room for (None: as many as help);
    ``reflecting`` finds new lessons (None: no search). ``functions`` are those of the agent that act: no lesson may
    order a call of them. ``memory`` holds lessons that earlier jobs removed, which are not proposed again.
    ``weights_trainer`` learns weights for a policy that has its own."""

    config: GRPOConfig
    seed: int
    environment: Environment
    train: Sequence[Scenario]
    selection: Sequence[Scenario]
    learner: Learner
    policy_version_prefix: str = ""
    acting: RuntimeMaker = by_choice
    model: str = ""
    closing: Callable[[], Coroutine[Any, Any, None]] = _nothing_to_close
    new_loop: Callable[[], AbstractEventLoop] | None = None
    library: Library = field(default_factory=Library)
    weights: Mapping[str, float] = field(default_factory=dict)
    known: PriorEstimates | None = None
    rule: QueryRule | None = None
    slots: int | None = None
    start: Callable[[], Policy] | None = None
    reflecting: Reflecting | None = None
    functions: frozenset[str] = frozenset()
    memory: RemovedLessons = NOTHING
    rollouts: RolloutStore = field(default_factory=NothingStored)
    weights_trainer: WeightsTrainer | None = None

    @property
    def search_queries(self) -> Sequence[Scenario]:
        """Training queries by which a search goes step by step: the selection queries are left to its gate."""
        wanted = search_size(len(self.train), len(self.selection))
        return [self.train[at * len(self.train) // wanted] for at in range(wanted)]

    def epoch(self, iteration: int) -> int:
        """The epoch (from 1) that an iteration belongs to: the iterations in equal parts, the last the shortest."""
        length = -(-self.config.n_iterations // self.config.context.epochs)
        return (max(iteration, 1) - 1) // length + 1

    def ends_epoch(self, iteration: int) -> bool:
        return iteration >= self.config.n_iterations or self.epoch(iteration) != self.epoch(iteration + 1)

    def version(self, iteration: int) -> str:
        return f"{self.policy_version_prefix}{iteration}"

    @property
    def validation_samples(self) -> int:
        """Rollouts per selection query of one validation."""
        return self.learner.validation_samples(self.config)

    @cached_property
    def query_vectors(self) -> QueryVectors:
        """Vectors that distinguish queries for a context policy; of size 0 where it does not use them."""
        distinguishes = self.config.algorithm == "grpo" and self.config.context.relevance == "queries"
        return _query_vectors(tuple(scenario.query for scenario in self.train)) if distinguishes else QueryVectors()

    def limits(self) -> RolloutLimits:
        config = self.config
        return RolloutLimits(config.max_steps, config.rollout_timeout_seconds, config.max_concurrent_rollouts)

    def plan(self, policy: Any, reward: Reward, *, temperature: float, purpose: str, stream: int = 0) -> RolloutPlan:
        """Rollouts of ``policy`` on the run's queries. ``purpose`` names its calls, ``stream`` its random numbers."""
        limits = self.limits()
        return RolloutPlan(
            environment=self.environment,
            runtime=self.acting(policy, temperature=temperature, max_steps=limits.max_steps, purpose=purpose),
            reward=reward,
            seed=self.seed,
            limits=limits,
            check=self.rollouts.check,
            stream=stream,
            policy_version=policy.version,
            model=self.model,
        )

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
class GateReport:
    """Test of a library on queries outside of training, and the decision (docs/algorithms.md#the-gate).

    ``candidate`` and ``current`` are handles; rates lie in [0, 1]. ``difference`` with its 95 % interval is candidate
    less current; ``gain`` and ``p_value`` (one-sided, over all interim analyses) compare it with the initial context.
    ``final`` is the gate at the end of a run, where ``accepted`` means that the candidate is shipped; elsewhere a step
    of the search ended. ``kept``: whether the search goes on with the lessons of the step.
    ``samples`` per query were taken of each side, in ``looks`` of at most ``most_looks`` interim analyses.
    ``tokens`` is the approximate size of the candidate in a call, ``lessons_each`` the number of lessons of a query,
    both on average over the queries of training. Where queries get different lessons, ``where`` holds the result of
    ``gate.where``. ``needs`` is set for a refused candidate that did better: with so many selection queries a true gain
    of that size is found in four of five runs (None: with more than 200).
    """

    iteration: int
    epoch: int
    candidate: tuple[str, ...]
    current: tuple[str, ...]
    n_queries: int
    samples: int
    candidate_rate: float
    current_rate: float
    difference: float
    low: float
    high: float
    gain: float
    p_value: float
    accepted: bool
    why: str
    rolled_back: list[str] = field(default_factory=list)
    tokens: int = 0
    lessons_each: float | None = None
    where: dict[str, dict[str, float]] = field(default_factory=dict)
    looks: int = 1
    most_looks: int = 1
    final: bool = True
    kept: bool = False
    needs: int | None = None


@dataclass
class IterationReport:
    """One applied iteration. ``groups`` carry their advantages; ``baseline`` is set on the first iteration only:
    the evaluation of the policy the run began with. ``reflected`` holds the proposals for the library and their
    outcomes, ``gate`` the decision about the candidate."""

    iteration: int
    groups: list[TrajectoryGroup]
    metrics: dict[str, float]
    warnings: list[str] = field(default_factory=list)
    selection: SelectionReport | None = None
    baseline: SelectionReport | None = None
    epoch: int = 1
    reflected: Reflected | None = None
    gate: GateReport | None = None
    stop_reason: str = ""
    rollout_seconds: float = 0.0
    update_seconds: float = 0.0
