"""The learner of policies that choose among an environment's actions: GRPO on a differentiable policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from experiences.learning.lessons.reflection import Reflected
from experiences.rollouts.runtimes.action import observation_of
from experiences.rollouts.types import TrajectoryGroup
from training.algorithm.convergence import Vitals
from training.learners.action_update import update_policy
from training.learners.settings import CONTEXT_ONLY, WEIGHTS_ONLY
from training.policies.action import ActionPolicy
from training.policies.base import Policy
from training.policies.exploration import FailureMemory
from training.policies.features import FeatureOptions
from training.schema import GRPOConfig
from training.trainer.results import UpdateResult
from training.trainer.setup import Learner, TrainerSetup
from training.trainer.state import TrainerState


class ActionLearner(Learner):
    name: ClassVar = "action"
    title: ClassVar = "a policy over actions"
    runtimes: ClassVar = frozenset({"action"})
    stored_as: ClassVar = ("action",)

    def reads(self, setting: str, algorithm: str = "grpo") -> bool:
        return setting.partition(".")[0] not in CONTEXT_ONLY | WEIGHTS_ONLY

    def unread(self, setting: str, config: GRPOConfig) -> str:
        if self.reads(setting, config.algorithm):
            return ""
        return (
            f"{setting} changes nothing here: it is for agents that learn lessons, and this one chooses actions."
            " Leave it out."
        )

    def faults(self, config: GRPOConfig) -> Mapping[str, str]:
        if config.algorithm in ("tfgrpo", "gepa"):
            return {
                "algorithm": f"algorithm {config.algorithm} puts its lessons into a language model's context; this"
                " agent chooses actions and has no context. Take algorithm grpo."
            }
        if config.algorithm == "dpo":
            return {"algorithm": "algorithm dpo learns a language model's weights, and this agent chooses actions."}
        return {}

    def untrained(self, setup: TrainerSetup) -> ActionPolicy:
        """Uniform over what is allowed; its vocabulary is that of the training queries."""
        options = FeatureOptions(**setup.config.features.model_dump())
        return ActionPolicy.fresh(setup.environment.actions, options, [scenario.query for scenario in setup.train])

    def from_state_dict(self, stored: Mapping[str, Any]) -> ActionPolicy:
        return ActionPolicy.from_state_dict(stored)

    def memory(self, setup: TrainerSetup, policy: Policy) -> FailureMemory | None:
        exploration = setup.config.exploration
        if exploration.failure_memory == 0 and exploration.query_sampling == "uniform":
            return None
        tracked = [action.kind == "tool" for action in setup.environment.actions]
        return FailureMemory(_own(policy).encoder, tracked, exploration.failure_memory)

    def act(self, setup: TrainerSetup, state: TrainerState) -> Any:
        policy, memory = _own(state.policy), _exploring_memory(setup, state)
        return policy if memory is None else policy.exploring(memory)

    def update(
        self,
        setup: TrainerSetup,
        state: TrainerState,
        groups: Sequence[TrajectoryGroup],
        reflected: Reflected | None,
        iteration: int,
    ) -> UpdateResult:
        memory = _exploring_memory(setup, state)
        result = update_policy(groups, _own(state.policy), state.optimizer, state.value, setup.config, memory)
        if state.memory is not None:
            remember(state.memory, groups)
        return result

    def warnings(self, setup: TrainerSetup, state: TrainerState, result: UpdateResult) -> list[str]:
        metrics = result.metrics
        return state.guard.update(
            Vitals(
                success_rate=metrics["success_rate"],
                reward_mean=metrics["reward_mean"],
                steps_mean=metrics["steps_mean"],
                entropy=metrics["entropy"],
                approx_kl=metrics["approx_kl"],
                loss=math.nan if result.not_finite else metrics["loss"],
                grad_norm=metrics["grad_norm"],
            )
        )


def remember(memory: FailureMemory, groups: Sequence[TrajectoryGroup]) -> None:
    """Adds the outcomes of an iteration to the memory."""
    for group in groups:
        solved = sum(trajectory.success for trajectory in group.trajectories)
        memory.count_group(group.scenario.query, solved / len(group.trajectories))
        for trajectory in group.trajectories:
            taken = [
                (observation_of(trajectory.query, s.state), s.choice) for s in trajectory.steps if s.choice is not None
            ]
            if trajectory.success:
                memory.count_success(taken)
            elif not solved:
                memory.count_failure(taken)


def _exploring_memory(setup: TrainerSetup, state: TrainerState) -> FailureMemory | None:
    return state.memory if setup.config.exploration.failure_memory > 0 else None


def _own(policy: Policy) -> ActionPolicy:
    assert isinstance(policy, ActionPolicy)
    return policy
