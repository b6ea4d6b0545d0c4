"""The learner of a language model's own weights: GRPO and its relatives on captured tokens, by a model server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from experiences.learning.lessons.reflection import Reflected
from experiences.rollouts.interruption import interruptible
from experiences.rollouts.types import TrajectoryGroup
from training.learners.settings import CONTEXT_ONLY
from training.learners.weights_update import update_weights
from training.policies.weights import WeightsPolicy
from training.schema import GRPOConfig
from training.trainer.results import UpdateResult
from training.trainer.setup import Learner, TrainerSetup
from training.trainer.state import TrainerState

# Settings of a policy with a list of actions only: features, a memory of failures, an exact entropy.
_OF_ACTIONS: Final = frozenset({"features", "exploration", "entropy_coef", "entropy_coef_failed_group"})


class WeightsLearner(Learner):
    name: ClassVar = "weights"
    title: ClassVar = "a language model's own weights"
    runtimes: ClassVar = frozenset({"llm", "http"})
    stored_as: ClassVar = ("weights",)
    needs_model_server: ClassVar = True
    defaults: ClassVar[Mapping[str, Any]] = {
        "n_iterations": 200,
        "batch_size": 8,
        "n_trajectories_per_query": 8,
        "eval_interval": 20,
        "eval_samples": 4,
        "learning_rate": 1e-4,
        "max_steps": 10,
        "shaping": {"tool": 0.0, "verify": 0.0},
        "early_stopping": {"patience": 8},
    }

    def reads(self, setting: str, algorithm: str = "grpo") -> bool:
        return setting.partition(".")[0] not in CONTEXT_ONLY | _OF_ACTIONS

    def faults(self, config: GRPOConfig) -> Mapping[str, str]:
        found: dict[str, str] = {}
        if config.algorithm in ("tfgrpo", "gepa"):
            found["algorithm"] = f"algorithm {config.algorithm} changes no weights. Take grpo or dpo."
        if config.algorithm == "dpo" and config.beta == 0:
            found["beta"] = "beta must be above 0 with algorithm dpo: it is how far a pair pulls. 0.1 is usual."
        if config.temperature != 1.0:
            found["temperature"] = (
                "temperature must be 1 for training rollouts of weights: what is drawn must have the probabilities that"
                f" are learned; got {config.temperature:g}. eval_temperature is free."
            )
        if config.optimizer == "sgd":
            found["optimizer"] = "optimizer sgd is not there for weights: they are moved by Adam. Take adamw."
        if config.beta > 0 and config.kl_estimator == "k1":
            found["kl_estimator"] = "kl_estimator k1 is paid in the reward, which weights don't have yet. Take k3."
        return found

    def untrained(self, setup: TrainerSetup) -> WeightsPolicy:
        """The base model as it is."""
        return WeightsPolicy()

    def from_state_dict(self, stored: Mapping[str, Any]) -> WeightsPolicy:
        return WeightsPolicy.from_state_dict(stored)

    async def learn(
        self,
        setup: TrainerSetup,
        state: TrainerState,
        groups: Sequence[TrajectoryGroup],
        reflected: Reflected | None,
        iteration: int,
    ) -> UpdateResult:
        assert setup.weights_trainer is not None and isinstance(state.policy, WeightsPolicy)
        async with interruptible(setup.rollouts.check):
            return await update_weights(
                groups, state.policy, state.value, setup.weights_trainer, setup.config, seed=setup.seed
            )

    def update(
        self,
        setup: TrainerSetup,
        state: TrainerState,
        groups: Sequence[TrajectoryGroup],
        reflected: Reflected | None,
        iteration: int,
    ) -> UpdateResult:
        raise NotImplementedError("weights are learned at a model server, by `learn`")

    def warnings(self, setup: TrainerSetup, state: TrainerState, result: UpdateResult) -> list[str]:
        """Warns of rollouts without captured tokens: no learning is possible from them."""
        if result.metrics["tokens"] or not result.metrics["steps"]:
            return []
        return ["No tokens were captured of these rollouts: the endpoint does not give them, so nothing is learned."]
