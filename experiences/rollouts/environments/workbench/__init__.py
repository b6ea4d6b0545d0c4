"""The workbench: generated tasks of coding, analysis, research and tool use, each with a verifier of its own."""

from experiences.rollouts.environments.workbench import environment

__all__ = ["environment"]
