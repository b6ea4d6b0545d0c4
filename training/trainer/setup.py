"""Inputs of the trainer, and the contract of a learner with it: each names the other.

A learner is one kind of policy. The state of a run is ``TrainerState``'s, not the learner's. The trainer plays
rollouts with the result of ``act`` and passes the groups to ``reflect`` and ``update``. ``validate`` then measures the
candidate, decides by the gate, and may stop the run.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final, Protocol

from experiences.learning.lessons.library import Library
from experiences.learning.lessons.reflection import Reflected, Rewritten
from experiences.learning.lessons.removed import NOTHING, RemovedLessons
from experiences.rollouts.collect import RolloutLimits, RolloutPlan
from experiences.rollouts.environments.base import Environment
from experiences.rollouts.own_weights import WeightsTrainer
from experiences.rollouts.rewards import Reward, rewards
from experiences.rollouts.runtimes.action import ActionRuntime
from experiences.rollouts.runtimes.base import Runtime
from experiences.rollouts.types import RolloutKey, Scenario, Trajectory, TrajectoryGroup
from training.policies.base import Policy
from training.policies.exploration import FailureMemory
from training.policies.prior_estimates import PriorEstimates
from training.policies.query_rule import QueryRule
from training.policies.query_words import QueryWords
from training.schema import GRPOConfig
from training.splits import search_size
from training.trainer.play import Played
from training.trainer.reports import GateReport, SelectionReport
from training.trainer.results import UpdateResult
from training.trainer.selection import selection_report, stop_on_plateau
from training.trainer.state import TrainerState


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

    async def rewrite(
        self, groups: Sequence[TrajectoryGroup], texts: Sequence[str], *, iteration: int
    ) -> Rewritten | None:
        """A whole context in place of ``texts``; None without a usable answer. Raises as ``reflect``."""
        ...

    async def kinds(self, queries: Sequence[str]) -> tuple[str, ...]:
        """The label of each query ("": none); () without a usable answer. Raises as ``reflect``."""
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
def _query_words(queries: tuple[str, ...]) -> QueryWords:
    return QueryWords.fitted(queries)


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
    def query_words(self) -> QueryWords:
        """Words that distinguish queries for a context policy; none where it does not measure lessons."""
        measures = self.config.algorithm == "grpo"
        return _query_words(tuple(scenario.query for scenario in self.train)) if measures else QueryWords()

    def fresh_state(self) -> TrainerState:
        """The state before the first iteration: an untrained policy, or a *copy* of the one to go on from, which
        then is the reference of the KL term and the baseline of the selection."""
        learner, start = self.learner, self.start
        policy = learner.untrained(self) if start is None else learner.from_state_dict(start().state_dict())
        policy.make_reference()
        policy.updated(self.version(0))
        return TrainerState.fresh(self.config, policy, learner.memory(self, policy))

    def state_of(self, data: bytes) -> TrainerState:
        """The state that ``to_bytes`` wrote, bit for bit.

        Raises:
            CorruptState: the bytes are not such a state, or that of another kind of run.
        """

        def restored(stored: Mapping[str, Any], ended: bool) -> tuple[Policy, FailureMemory | None]:
            policy = self.learner.restored(self, stored, ended=ended)
            return policy, self.learner.memory(self, policy)

        return TrainerState.from_bytes(data, self.config, restored)

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
        """Raises:
        UnknownName, ValueError: there is no such reward, or it refuses its options."""
        return configured_reward(self.config)


def configured_reward(config: GRPOConfig) -> Reward:
    """The configured reward, given those of the shaping options that it knows, and its own options.

    Raises:
        UnknownName, ValueError: there is no such reward, or it refuses its options.
    """
    factory = rewards.get(config.reward)
    options = {**config.shaping.model_dump(), "gamma": config.gamma}
    known = {name: value for name, value in options.items() if name in factory.option_help}
    return factory(known | config.reward_options)


FORMER_NAMES: Final = {
    "tells": "learns_context",
    "needs_door": "needs_model_server",
    "look_samples": "validation_samples",
}


class ValidationPlayer(Protocol):
    """Plays ``chooser`` on the selection queries (``searching``: on those of the search), ``samples`` times each (None:
    as often as one validation) from sample ``first`` on. ``at`` is the iteration after which it is played."""

    def __call__(
        self, chooser: Any, at: int, first: int = 0, samples: int | None = None, *, searching: bool = False
    ) -> Played: ...


class Learner(ABC):
    """One kind of policy: how it begins, acts, learns, is validated, stored and described.

    ``runtimes`` are those of agents whose rollouts it learns from; of several learners that fit, a launch names one
    (``learner``), else the first built-in one is taken. ``stored_as`` is what its policies' ``state_dict()["kind"]``
    may say. ``learns_context`` means that what is learned is lessons for a model's context, which have rows and pages.
    ``needs_model_server``: the agent's endpoint has to be a model server (docs/weights.md).
    ``defaults`` differ from ``GRPOConfig``'s own for this learner, under every preset.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    runtimes: ClassVar[frozenset[str]]
    stored_as: ClassVar[tuple[str, ...]]
    learns_context: ClassVar[bool] = False
    needs_model_server: ClassVar[bool] = False
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        """Takes the names of release 0.1 too, for the learners of other packages. The next release drops them."""
        super().__init_subclass__(**options)
        for old, name in FORMER_NAMES.items():
            if old in vars(cls):
                warnings.warn(f"{cls.__qualname__}.{old} is called {name} now.", DeprecationWarning, stacklevel=2)
                setattr(cls, name, vars(cls)[old])

    # -- describe --------------------------------------------------------------------------------------------------

    def reads(self, setting: str, algorithm: str = "grpo") -> bool:
        """Whether a setting, by its dotted name, changes anything for this learner."""
        return True

    def unread(self, setting: str, config: GRPOConfig) -> str:
        """Why a setting changes nothing in a run of ``config``, and what to do; "" where it counts."""
        if self.reads(setting, config.algorithm):
            return ""
        return f"{setting} changes nothing here: {self.title} does not read it. Leave it out."

    def faults(self, config: GRPOConfig) -> Mapping[str, str]:
        """Messages by field for combinations by which this learner can't learn, though each value is in range."""
        return {}

    def validation_samples(self, config: GRPOConfig) -> int:
        """Rollouts per selection query of one validation."""
        return config.eval_samples

    # -- state -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def untrained(self, setup: TrainerSetup) -> Policy:
        """The policy that a run begins with."""

    @abstractmethod
    def from_state_dict(self, stored: Mapping[str, Any]) -> Policy:
        """The policy that ``state_dict`` wrote, bit for bit.

        Raises:
            KeyError, TypeError, ValueError: it is no such state.
        """

    def restored(self, setup: TrainerSetup, stored: Mapping[str, Any], *, ended: bool) -> Policy:
        """The policy of a stored state of a run, upgraded to this release (``ended``: whether the run had ended)."""
        return self.from_state_dict(stored)

    def memory(self, setup: TrainerSetup, policy: Policy) -> FailureMemory | None:
        """The memory of failures beside the policy; None if there is none."""
        return None

    # -- act -------------------------------------------------------------------------------------------------------

    def queries(self, setup: TrainerSetup, state: TrainerState) -> Sequence[int] | None:
        """Positions in ``setup.train`` of the next iteration's queries; None: the trainer draws them."""
        return None

    def act(self, setup: TrainerSetup, state: TrainerState) -> Any:
        """The chooser of training rollouts, passed to ``setup.acting``."""
        return state.policy

    # -- learn -----------------------------------------------------------------------------------------------------

    async def reflect(
        self, setup: TrainerSetup, state: TrainerState, groups: Sequence[TrajectoryGroup], iteration: int
    ) -> Reflected | None:
        """The lessons that a model proposes from the groups; None if no model is asked. Leaves the state unchanged, so
        that an interruption does no harm."""
        return None

    @abstractmethod
    def update(
        self,
        setup: TrainerSetup,
        state: TrainerState,
        groups: Sequence[TrajectoryGroup],
        reflected: Reflected | None,
        iteration: int,
    ) -> UpdateResult:
        """Learns from ``groups`` in place, and writes their advantages into them."""

    async def learn(
        self,
        setup: TrainerSetup,
        state: TrainerState,
        groups: Sequence[TrajectoryGroup],
        reflected: Reflected | None,
        iteration: int,
    ) -> UpdateResult:
        """Called by the loop; runs ``update`` for a learner that needs no other process. An exception leaves the state
        unchanged."""
        return self.update(setup, state, groups, reflected, iteration)

    def warnings(self, setup: TrainerSetup, state: TrainerState, result: UpdateResult) -> list[str]:
        """Signs that learning collapses, or can't begin, in words for people."""
        return []

    # -- candidate and gate ----------------------------------------------------------------------------------------

    def begin(self, setup: TrainerSetup, state: TrainerState, validate: ValidationPlayer) -> None:  # noqa: B027  (most need nothing)
        """Measures what ``validate`` needs besides the baseline, once, before training."""

    def validates_after(self, setup: TrainerSetup, iteration: int) -> bool:
        """Whether ``validate`` is called after this iteration although no evaluation is due."""
        return False

    def validate(
        self, setup: TrainerSetup, state: TrainerState, validate: ValidationPlayer, *, evaluates: bool
    ) -> tuple[SelectionReport | None, GateReport | None]:
        """Validates the candidate on the selection queries, decides what is shipped, and may set ``state.stop_reason``.
        ``evaluates`` is False if only ``validates_after`` asked for the call."""
        assert state.baseline_success is not None
        played = validate(state.policy, state.iteration)
        stop_on_plateau(setup.config, state, played)
        return selection_report(state.iteration, played, state.baseline_success), None
