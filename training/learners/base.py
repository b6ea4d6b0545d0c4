"""Learner: the contract of one kind of policy with the trainer, the services and the pages.

A learner holds no state of a run: that is ``TrainerState``'s. The trainer plays rollouts with the result of ``act``,
passes the groups to ``reflect`` and ``update``, and lets ``validate`` measure the candidate, gate it and stop the run.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from experiences.learning.lessons.reflection import Reflected
from experiences.rollouts.types import TrajectoryGroup
from training.policies.base import Policy
from training.policies.exploration import FailureMemory
from training.schema import GRPOConfig
from training.trainer.results import UpdateResult
from training.trainer.selection import selection_report, stop_on_plateau

if TYPE_CHECKING:
    from training.trainer.play import Played
    from training.trainer.setup import GateReport, SelectionReport, TrainerSetup
    from training.trainer.state import TrainerState


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
        stop_on_plateau(setup, state, played)
        return selection_report(state.iteration, played, state.baseline_success), None
