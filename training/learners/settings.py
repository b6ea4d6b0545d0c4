"""Settings that each built-in learner reads. A launch with a setting that has no effect is refused, so that no
experiment relies on it. A stored configuration is read as it is, including settings without effect."""

from __future__ import annotations

from typing import Final

# Settings that only a policy over actions learns by: an agent that learns lessons has no weights, and no steps to
# credit. The discount is one of these, but where the reward pays by it.
ACTIONS_ONLY: Final = frozenset(
    {
        "beta", "kl_estimator", "use_bias_correction_kl", "credit", "gamma", "step_advantage_w", "value_fit",
        "gae_lambda", "entropy_coef_failed_group", "mask_truncated", "exploration", "features", "warm_start", "weights",
    }
)  # fmt: skip
CONTEXT_ONLY: Final = frozenset({"context"})
WEIGHTS_ONLY: Final = frozenset({"weights"})
# How the weights of lessons move by GRPO's gradient.
GRADIENT: Final = frozenset(
    {
        "learning_rate", "optimizer", "max_grad_norm", "weight_decay", "loss_type", "epsilon", "epsilon_high", "delta",
        "importance_sampling_level", "num_iterations", "entropy_coef", "advantage_filter",
    }
)  # fmt: skip
# What is measured of single lessons, which training-free GRPO does not.
MEASURED: Final = frozenset(
    {
        "context.update_rule", "context.propose_until", "context.prune_z", "context.prune_information",
        "context.ship_confidence", "context.relevance", "context.kinds",
    }
)  # fmt: skip
# Settings of algorithms that compare rollouts of one query with each other, and ask for single lessons.
BY_PAIRS: Final = frozenset(
    {
        "context.propose", "context.token_cost", "context.propose_every", "context.reflect_each",
        "context.group_tokens", "context.exemplars", "context.max_lessons", "context.max_new", "context.min_mixed",
        "context.stop_when_equal", "dynamic_sampling", "max_num_gen_batches",
    }
)  # fmt: skip
# What the search of training-free GRPO goes by, step by step.
SEARCH: Final = frozenset({"context.gate_margin", "context.search_every"})
