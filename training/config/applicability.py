"""Which settings a run reads: what changes nothing is refused at launch, so that no experiment rests on it.

A configuration that is stored already is read as it is, with settings that change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from training.config.schema import GRPOConfig

# What only a policy that chooses actions learns by: an agent that is told lessons has no weights, and no steps to
# credit. The discount is one of these, but where the reward pays by it.
ACTIONS_ONLY: Final = frozenset(
    {
        "beta", "kl_estimator", "use_bias_correction_kl", "credit", "gamma", "step_advantage_w", "value_fit",
        "gae_lambda", "entropy_coef_failed_group", "mask_truncated", "exploration", "features",
    }
)  # fmt: skip
LESSONS_ONLY: Final = frozenset({"context"})
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
        "context.ship_confidence", "context.relevance",
    }
)  # fmt: skip

# What the search of training-free GRPO goes by, step by step.
SEARCH: Final = frozenset({"context.gate_margin", "context.search_every"})


def counts_for(name: str, policy_kind: str, algorithm: str = "grpo") -> bool:
    """Whether a setting (by its dotted name) changes anything for agents of this kind."""
    top = name.partition(".")[0]
    if policy_kind == "action":
        return top not in LESSONS_ONLY
    return top not in ACTIONS_ONLY and name not in (GRADIENT | MEASURED if algorithm == "tfgrpo" else SEARCH)


def unused(name: str, config: GRPOConfig, policy_kind: str) -> str:
    """Why a setting changes nothing in a run of ``config``, and what to do; "" where it counts."""
    return next(_reasons(name, config, policy_kind), "")


def _reasons(name: str, config: GRPOConfig, policy_kind: str) -> Iterator[str]:
    if name == "gamma" and config.reward == "shaped" and config.shaping.rule == "potential":
        return
    if not any(counts_for(name, policy_kind, algorithm) for algorithm in ("grpo", "tfgrpo")):
        these, those = ("choose actions", "is told lessons")
        if policy_kind == "action":
            these, those = ("are told lessons", "chooses actions")
        yield f"{name} changes nothing here: it is for agents that {these}, and this one {those}. Leave it out."
    elif name in SEARCH and not counts_for(name, policy_kind, config.algorithm):
        yield f"{name} changes nothing with algorithm grpo, which keeps nothing step by step. Leave it out."
    elif not counts_for(name, policy_kind, config.algorithm):
        yield (
            f"{name} changes nothing with algorithm tfgrpo, which tells all lessons and measures none of them. Leave it"
            " out, or take algorithm grpo."
        )
    elif policy_kind != "action" and config.context.update_rule == "ridge_thompson" and name in GRADIENT:
        yield (
            f"{name} changes nothing with context.update_rule ridge_thompson, which weighs lessons by evidence and not"
            " by a gradient. Leave it out, or take grpo_adam."
        )
