"""``GRPOConfig``: the one description of a training job's settings.

Form, REST, JSON-RPC, command line and the stored row all use this class, so that a rule or a default exists
once. The first six names are part of the public contract (docs/api.md); the others follow TRL where TRL has the
option. Titles and descriptions are what a form shows.
"""

from __future__ import annotations

import ast
import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from experiences.rollouts.rewards import rewards
from training.algorithm.advantages import AdvantageFilter, Baseline, ScaleRewards
from training.algorithm.credit import Credit
from training.algorithm.kl import KLEstimator
from training.algorithm.losses import ImportanceLevel, LossType
from training.algorithm.optimizers import OptimizerName
from training.algorithm.value import ValueFit
from training.schema_sections import (
    ContextConfig,
    EarlyStoppingConfig,
    ExplorationConfig,
    FeatureConfig,
    Section,
    ShapingConfig,
    WeightsConfig,
)
from training.splits import HELD_OUT_SHARE, SELECTION_LEAST, SELECTION_SHARE

MOST_HELD_OUT = 0.9  # of a dataset: the rest has to teach and to select


def read_object(value: Any) -> Any:
    """A form has texts only: an object is read from JSON, or from Python's way of writing it, in which a form shows
    the value of an earlier job. What is neither is left for the schema to refuse."""
    if not isinstance(value, str):
        return value
    for read in (json.loads, ast.literal_eval):
        try:
            return read(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return value


class GRPOConfig(Section):
    """Settings of one training job. Immutable; unknown keys are refused."""

    preset: str = Field(
        "recommended", max_length=40, title="Preset",
        description="The named configuration the others start from; differences to it are shown.",
    )  # fmt: skip

    algorithm: Literal["grpo", "tfgrpo", "gepa", "dpo"] = Field(
        "grpo", title="Algorithm",
        description="grpo learns by gradients; for a language model's agent lessons are proposed, and rewards decide "
        "which the context holds. tfgrpo (training-free GRPO) takes all of them, and step by step keeps or "
        "gives up what it learned. gepa (the optimiser of that name) rewrites the whole context, and keeps what scores "
        "better. dpo learns weights from the best and the worst rollout of each group.",
    )  # fmt: skip

    learner: str = Field(
        "", max_length=60, title="Learner",
        description="What learns: action (a policy over actions), context (lessons for a model's prompt), weights (a "
        "language model's own), or the name of one that an installed package brings. Empty takes the one that fits "
        "the agent.",
    )  # fmt: skip

    warm_start: bool = Field(
        True, title="Warm start",
        description="Begins with the checkpoint that the agent's people promoted, where there is one, and is measured "
        "against it. Off begins untrained.",
    )  # fmt: skip

    # Size of the job. Names and ranges are part of the public contract.
    n_iterations: int = Field(
        1000, ge=1, le=10_000, title="Iterations",
        description="Policy updates at most; early stopping may end the job sooner. 100-1,000 is usual.",
    )  # fmt: skip
    batch_size: int = Field(
        16, ge=1, le=128, title="Queries per iteration",
        description="How many queries each update learns from. Small batches (2-8) learn from fewer rollouts in "
        "all; large ones are steadier.",
    )  # fmt: skip
    n_trajectories_per_query: int = Field(
        8, ge=1, le=32, title="Rollouts per query",
        description="Siblings that are compared with each other. 4-16; GRPO needs at least 2.",
    )  # fmt: skip
    learning_rate: float = Field(
        1e-4, gt=0, le=0.1, title="Learning rate",
        description="Length of each update. For the action policy with Adam 0.01-0.05, for model weights 1e-6 to 1e-5.",
    )  # fmt: skip
    max_budget_usd: float = Field(
        100.0, gt=0, le=1_000_000_000, title="Budget in US dollars",
        description="The job pauses before it would spend more than this.",
    )  # fmt: skip
    max_monthly_budget_usd: float | None = Field(
        None, gt=0, le=1_000_000_000, title="Agent's monthly budget in US dollars",
        description="The agent's budget of each month is at most this from the launch on, which needs the right to "
        "edit budgets where that changes it. A smaller budget stays.",
    )  # fmt: skip
    checkpoint_interval: int = Field(
        10, ge=1, le=10_000, title="Checkpoint every",
        description="Iterations between two saved checkpoints. Rare ones save storage, frequent ones lose less.",
    )  # fmt: skip

    # Advantages and credit.
    scale_rewards: ScaleRewards = Field(
        "group", title="Scale rewards by",
        description="What an advantage is divided by: the std of its group, of the batch, or nothing (Dr. GRPO).",
    )  # fmt: skip
    baseline: Baseline = Field(
        "group_mean", title="Baseline",
        description="What a reward is compared with: the group's mean, the mean of the others (RLOO), or a learned "
        "value of the initial state (for groups of one).",
    )  # fmt: skip
    adv_eps: float = Field(
        0.1, ge=0, le=10, title="Spread floor",
        description="Added to the std before dividing. 0.1 for rewards of order 1: tiny values blow step costs up "
        "to full advantages in groups where all fail.",
    )  # fmt: skip
    std_ddof: Literal[0, 1] = Field(
        1, title="Spread correction",
        description="1 is the sample std (TRL, verl), 0 the population std: 41 % apart at 2 rollouts, little at "
        "16.",
    )  # fmt: skip
    advantage_filter: AdvantageFilter = Field(
        "none", title="Advantage filter",
        description="positive learns from above-average rollouts only: slower, and risk-seeking under noisy rewards.",
    )  # fmt: skip
    credit: Credit = Field(
        "reward_to_go", title="Credit",
        description="How a reward is shared among steps. reward_to_go learns fastest; discounted weighs "
        "step i of n by gamma^(n-i-1); uniform is plain GRPO; value uses a learned V(state).",
    )  # fmt: skip
    gamma: float = Field(
        0.99, gt=0, le=1, title="Discount",
        description="Weight of a reward one step later. 0.95-1; little matters over 20 steps.",
    )  # fmt: skip
    step_advantage_w: float = Field(
        1.0, ge=0, le=10, title="GiGPO step weight",
        description="Credit gigpo: weight of the comparison between siblings in the same state. Usually 1.",
    )  # fmt: skip
    value_fit: ValueFit = Field(
        "regression", title="Value fit",
        description="How a value baseline is learned: regression on whole returns, or temporal differences (td).",
    )  # fmt: skip
    gae_lambda: float = Field(
        1.0, ge=0, le=1, title="GAE lambda",
        description="Credit value: 1 trusts returns, 0 trusts the value function. 0.9-1.",
    )  # fmt: skip

    # Loss.
    loss_type: LossType = Field(
        "dapo", title="Loss",
        description="How steps are weighted and clipped: dapo (mean over steps), grpo (mean over a rollout's steps, "
        "then over the rollouts that have steps: TRL divides by all), bnpo, dr_grpo, cispo, or reinforce (-log_prob * "
        "advantage).",
    )  # fmt: skip
    epsilon: float = Field(
        0.2, gt=0, lt=1, title="Clip below",
        description="Ratios under 1 - epsilon stop a step's pull. 0.1-0.3; GSPO uses 3e-4.",
    )  # fmt: skip
    epsilon_high: float = Field(
        0.28, gt=0, le=100, title="Clip above",
        description="Ratios over 1 + epsilon_high stop a step's pull. 0.2-0.3. With loss cispo it is the cap of the "
        "ratio itself (about 5).",
    )  # fmt: skip
    delta: float | None = Field(
        None, gt=1, le=100, title="Dual clip",
        description="Bounds the ratio from above for negative advantages too. Empty is off; 2-4 tames outliers.",
    )  # fmt: skip
    importance_sampling_level: ImportanceLevel = Field(
        "token", title="Importance ratio per",
        description="token: one ratio per step; sequence: one per trajectory (GSPO).",
    )  # fmt: skip
    num_iterations: int = Field(
        1, ge=1, le=8, title="Inner epochs",
        description="Optimiser steps on each batch. 1-2; more reuses rollouts harder and relies on clipping.",
    )  # fmt: skip
    beta: float = Field(
        0.0, ge=0, le=10, title="KL weight",
        description="Pull towards the policy the job began with. 0 is off; 0.001-0.05 keeps it near.",
    )  # fmt: skip
    kl_estimator: KLEstimator = Field(
        "k3", title="KL estimator",
        description="k3 and k2 join the loss, k1 the reward. Matters only with a KL weight.",
    )  # fmt: skip
    use_bias_correction_kl: bool = Field(
        True, title="Correct the KL's bias",
        description="Multiplies the KL term by the importance ratio, which makes k3's gradient exact.",
    )  # fmt: skip
    entropy_coef: float = Field(
        0.0, ge=0, le=1, title="Entropy bonus",
        description="Keeps the policy from committing too early. 0.02 with scaled advantages, 0.005 for RLOO, 0.001 "
        "for dr_grpo.",
    )  # fmt: skip
    entropy_coef_failed_group: float = Field(
        0.0, ge=0, le=2, title="Entropy bonus of failed groups",
        description="Entropy bonus of the steps of a group without a single success: all siblings walked into the "
        "same trap and their rewards say nothing, so look elsewhere. 0.1-0.5.",
    )  # fmt: skip
    mask_truncated: bool = Field(
        False, title="Leave out cut-off rollouts",
        description="Rollouts that hit the step limit count in the figures but not in the loss.",
    )  # fmt: skip

    # Which queries.
    dynamic_sampling: bool = Field(
        False, title="Dynamic sampling",
        description="Replaces groups without spread by other queries until the batch is full (DAPO). Costs rollouts.",
    )  # fmt: skip
    max_num_gen_batches: int = Field(
        3, ge=1, le=20, title="Sampling rounds",
        description="Dynamic sampling: rounds of rollouts per update at most. 2-5.",
    )  # fmt: skip

    exploration: ExplorationConfig = Field(
        default_factory=ExplorationConfig, title="Exploration", description="How rollouts find what is not yet known."
    )

    # Optimiser.
    optimizer: OptimizerName = Field(
        "adamw", title="Optimiser",
        description="adamw or adam for nearly everything; sgd needs far larger learning rates.",
    )  # fmt: skip
    max_grad_norm: float = Field(
        1.0, gt=0, le=1000, title="Gradient clip",
        description="Longest gradient, as a norm over all parameters. 0.5-5.",
    )  # fmt: skip
    weight_decay: float = Field(
        0.0, ge=0, le=1, title="Weight decay",
        description="Shrinks parameters at each step. 0 for the action policy, about 0.01 for model weights.",
    )  # fmt: skip

    # Rollouts and rewards.
    temperature: float = Field(
        1.0, gt=0, le=5, title="Temperature",
        description="Randomness of training rollouts. 1 for the action policy, 0.7 for a frozen LLM.",
    )  # fmt: skip
    max_steps: int = Field(
        20, ge=1, le=1000, title="Steps per rollout",
        description="A rollout is cut off after this many steps.",
    )  # fmt: skip
    rollout_timeout_seconds: float = Field(
        300.0, gt=0, le=86_400, title="Seconds per rollout",
        description="A rollout that takes longer becomes a failure with a penalty. Waiting for a model does not count.",
    )  # fmt: skip
    max_concurrent_rollouts: int = Field(
        8, ge=1, le=1000, title="Rollouts at once",
        description="More are faster as long as the model's rate limit and the environment allow it.",
    )  # fmt: skip
    reward: str = Field(
        "shaped", min_length=1, max_length=100, title="Reward",
        description=f"Name of the reward function in the registry: {', '.join(rewards.built_in())}, "
        "or one of your own.",
    )  # fmt: skip
    reward_options: Annotated[dict[str, Any], BeforeValidator(read_object)] = Field(
        default_factory=dict, title="Reward options",
        description="Options of the reward by name, as a JSON object: the weights of composite, what relative_rank "
        "ranks by, the rubric of judge. /api/v1/rewards lists them.",
    )  # fmt: skip
    shaping: ShapingConfig = Field(
        default_factory=ShapingConfig, title="Shaping", description="What is paid beside the outcome."
    )
    features: FeatureConfig = Field(
        default_factory=FeatureConfig,
        title="Features",
        description="What the action policy sees of a text: words, and not their meaning. In the embedded environment "
        "it succeeds on .99 of new requests in known wording, and on .57 in words that no training query uses.",
    )

    context: ContextConfig = Field(
        default_factory=ContextConfig, title="Context of the agent", description="How lessons are found and weighed."
    )

    weights: WeightsConfig = Field(
        default_factory=WeightsConfig, title="Weights", description="How a language model's own weights are learned."
    )

    # Selection.
    held_out_share: float = Field(
        HELD_OUT_SHARE, gt=0, le=MOST_HELD_OUT, title="Held-out share",
        description="Of a dataset's queries, the share that proves what was learned: it neither trains nor selects. "
        "0.1-0.3.",
    )  # fmt: skip
    selection_share: float = Field(
        SELECTION_SHARE, gt=0, le=0.5, title="Selection share",
        description="Of a dataset's queries that are not held out, the share that selects: it decides what is shipped "
        "and is never trained on. 0.2-0.4.",
    )  # fmt: skip
    selection_least: int = Field(
        SELECTION_LEAST, ge=1, le=1000, title="Selection queries at least",
        description="A small dataset gives more than its share to reach this number, up to 40 %.",
    )  # fmt: skip
    eval_interval: int = Field(
        10, ge=1, le=10_000, title="Evaluate every",
        description="Iterations between two evaluations on the selection queries.",
    )  # fmt: skip
    eval_samples: int = Field(
        8, ge=1, le=64, title="Samples per query",
        description="Rollouts per held-out query in the proof, and of an action policy per selection query. 8 lets 20 "
        "queries show a gain of 15 points.",
    )  # fmt: skip
    eval_temperature: float = Field(
        0.3, ge=0, le=5, title="Evaluation temperature",
        description="Randomness when evaluating: 0 always takes the best action; 0.3 is usual for an LLM.",
    )  # fmt: skip
    early_stopping: EarlyStoppingConfig = Field(
        default_factory=EarlyStoppingConfig, title="Early stopping", description="When to stop before the end."
    )

    seed: int = Field(
        0, ge=0, le=2**31 - 1, title="Seed",
        description="The same seed, data and version give the same run.",
    )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """JSON values, complete: what the row stores."""
        return self.model_dump(mode="json")
