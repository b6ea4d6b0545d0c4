"""Environments by name. The built-in ones are registered here; a user's own come through entry points."""

from experiences.rollouts.environments import agentgym, dataset, reasoning_gym, workbench
from experiences.rollouts.environments.base import (
    Environment,
    EnvironmentFactory,
    Episode,
    StepOutcome,
    environments,
)

__all__ = [
    "Environment",
    "EnvironmentFactory",
    "Episode",
    "StepOutcome",
    "environments",
]
