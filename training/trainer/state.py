"""Everything that changes during a run, as bytes and back: a resumed run ends where an uninterrupted one would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from training.algorithm.arrays import FloatArray
from training.algorithm.convergence import CollapseGuard, EarlyStopper
from training.algorithm.optimizers import Optimizer, make_optimizer
from training.algorithm.value import RidgeValue
from training.policies.archive import CorruptState, nested, pack, under, unpack
from training.policies.base import Policy
from training.policies.exploration import FailureMemory
from training.schema import GRPOConfig
from training.trainer import versions

_VALIDATIONS = ("baseline_success", "baseline_steps", "baseline_reward", "search_start", "current_success")


@dataclass
class TrainerState:
    """Policy, optimiser, value function, memory, early stopper, guard and counters after ``iteration``.

    ``baseline_success`` (n, k) holds the selection results of the policy the run began with, once measured, and
    ``baseline_steps`` and ``baseline_reward`` its other results (None in checkpoints from before these were
    kept). ``search_start`` (m, k) are results on a search's own queries as the run began, ``current_success`` (m, k)
    those of the context that it kept last; None where nothing is searched.
    ``reward`` is what a learning reward remembers; empty for the others, and in checkpoints from before there were any.
    ``drawn`` counts draws from the pool of queries; ``refused`` counts updates in a row that were not finite.
    """

    iteration: int
    policy: Policy
    optimizer: Optimizer
    value: RidgeValue | None
    memory: FailureMemory | None
    stopper: EarlyStopper
    guard: CollapseGuard
    baseline_success: FloatArray | None = None
    baseline_steps: FloatArray | None = None
    baseline_reward: FloatArray | None = None
    search_start: FloatArray | None = None
    current_success: FloatArray | None = None
    reward: dict[str, Any] = field(default_factory=dict)
    drawn: int = 0
    trajectories: int = 0
    refused: int = 0
    stop_reason: str = ""

    @classmethod
    def fresh(cls, config: GRPOConfig, policy: Policy, memory: FailureMemory | None) -> TrainerState:
        """The state before the first iteration, with the policy that the run begins with."""
        return cls(
            iteration=0,
            policy=policy,
            optimizer=_optimizer(config),
            value=RidgeValue() if _wants_value(config) else None,
            memory=memory,
            stopper=EarlyStopper(config.early_stopping.patience, config.early_stopping.min_delta),
            guard=CollapseGuard(),
        )

    def to_bytes(self) -> bytes:
        state: dict[str, Any] = {
            versions.KEY: versions.FORMAT,
            "iteration": self.iteration,
            "drawn": self.drawn,
            "trajectories": self.trajectories,
            "refused": self.refused,
            "stop_reason": self.stop_reason,
            "stopper": asdict(self.stopper),
            "guard": asdict(self.guard),
        }
        for name in _VALIDATIONS:
            if (found := getattr(self, name)) is not None:
                state[name] = found.astype(np.float32)
        if self.value is not None:
            state["value"] = self.value.weights
        if self.memory is not None:
            state.update(nested("memory", self.memory.state_dict()))
        state.update(nested("reward", self.reward))
        state.update(nested("policy", self.policy.state_dict()))
        state.update(nested("optimizer", self.optimizer.state_dict()))
        return pack(state)

    @classmethod
    def from_bytes(
        cls,
        data: bytes,
        config: GRPOConfig,
        restored: Callable[[Mapping[str, Any], bool], tuple[Policy, FailureMemory | None]],
    ) -> TrainerState:
        """The state that ``to_bytes`` wrote, bit for bit. ``restored`` makes the policy, and the memory before its
        failures are loaded, from the policy's stored state and whether the run had ended.

        Raises:
            CorruptState: the bytes are not such a state, or that of another kind of run.
        """
        state = versions.upgraded(unpack(data))
        try:
            policy, memory = restored(under("policy", state), bool(state["stop_reason"]))
            return cls._restored(config, policy, memory, state)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CorruptState(f"The stored state does not fit this run: {error!r}") from error

    @classmethod
    def _restored(
        cls, config: GRPOConfig, policy: Policy, memory: FailureMemory | None, state: dict[str, Any]
    ) -> TrainerState:
        optimizer = _optimizer(config)
        optimizer.load_state_dict(under("optimizer", state))
        validations = {name: state[name].astype(np.float64) for name in _VALIDATIONS if name in state}
        if memory is not None:
            memory.load_state_dict(under("memory", state))
        return cls(
            iteration=int(state["iteration"]),
            policy=policy,
            optimizer=optimizer,
            value=RidgeValue(weights=state["value"]) if _wants_value(config) else None,
            memory=memory,
            stopper=EarlyStopper(**state["stopper"]),
            guard=CollapseGuard(**state["guard"]),
            **validations,
            reward=under("reward", state),
            drawn=int(state["drawn"]),
            trajectories=int(state["trajectories"]),
            refused=int(state["refused"]),
            stop_reason=str(state["stop_reason"]),
        )


def _optimizer(config: GRPOConfig) -> Optimizer:
    return make_optimizer(config.optimizer, learning_rate=config.learning_rate, weight_decay=config.weight_decay)


def _wants_value(config: GRPOConfig) -> bool:
    return config.baseline == "value" or config.credit == "value"
