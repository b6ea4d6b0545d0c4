"""Strategies that a release can't be deployed by."""

from __future__ import annotations

from typing import Final

from evaluation.serving.models import AgentServing, DeploymentStrategy, Release
from evaluation.serving.releases.bundle import Bundle
from evaluation.serving.releases.selectors import bundle_of
from experiences.rollouts.tools.llm_tools import QUICK

COMPARES: Final = (DeploymentStrategy.CANARY, DeploymentStrategy.SHADOW, DeploymentStrategy.BLUE_GREEN)


def strategy_fault(strategy: str, release: Release, serving: AgentServing) -> str:
    """The reason against it; "" without one."""
    if strategy not in DeploymentStrategy.values:
        return f"A strategy is one of {', '.join(DeploymentStrategy.values)}."
    if serving.release is None and strategy in COMPARES:
        return f"Nothing serves {release.agent.name} yet, so there is nothing to compare with: deploy it at once."
    if strategy == DeploymentStrategy.SHADOW and _acts(bundle_of(release)):
        return "A shadow would act twice for one request: this release calls its tools by itself. Choose a canary."
    return ""


def _acts(bundle: Bundle) -> bool:
    """True if the gateway calls tools of this release that may change something. Our built-in tools only compute."""
    return bundle.is_played and bool(bundle.servers or set(bundle.tools) - {tool.name for tool in QUICK})
