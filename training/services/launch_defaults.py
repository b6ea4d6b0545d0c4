"""Defaults of a launch: the agent's own reward and the site's settings, laid over the preset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from django.conf import settings

from experiences.models import Agent


class LaunchDefaults(TypedDict):
    """Settings of ``GRPOConfig``; those of the reward only where the agent has one."""

    max_budget_usd: float
    checkpoint_interval: int
    max_concurrent_rollouts: int
    reward: NotRequired[str]
    reward_options: NotRequired[dict[str, Any]]


def launch_defaults(agent: Agent | None, asked: Mapping[str, Any]) -> LaunchDefaults:
    """Default settings by name, nested as in the schema; ``asked`` holds the settings of the launch itself.

    The agent's reward comes with its options. A launch that names another reward takes none of them, and options that
    a launch gives take the place of the agent's.
    """
    found: LaunchDefaults = {
        "max_budget_usd": settings.TRAINING_DEFAULT_BUDGET_USD,
        "checkpoint_interval": settings.TRAINING_CHECKPOINT_INTERVAL,
        "max_concurrent_rollouts": settings.TRAINING_MAX_CONCURRENT_ROLLOUTS,
    }
    if agent is not None and agent.reward and asked.get("reward", agent.reward) == agent.reward:
        found["reward"] = agent.reward
        if "reward_options" not in asked:
            found["reward_options"] = dict(agent.reward_options)
    return found


def groups_fault(agent: Agent) -> str:
    """Why this agent may not be trained in groups (training-free GRPO), in a sentence; "" if it may."""
    if not settings.FEATURE_TFGRPO_GROUP:
        return "Training-free GRPO is switched off here (FEATURE_TFGRPO_GROUP=0). Take algorithm grpo."
    if not agent.grouped_execution:
        return (
            "Training-free GRPO is off for this agent. Switch it on in the agent's form (grouped_execution), or take"
            " algorithm grpo."
        )
    return ""
