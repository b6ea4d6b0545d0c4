"""AgentGym: worlds behind an environment server that is spoken to over HTTP, in either of its two dialects."""

from experiences.rollouts.environments.agentgym.environment import AgentGymEnvironment, AgentGymFactory
from experiences.rollouts.environments.agentgym.episode import GymEpisode
from experiences.rollouts.environments.agentgym.wire import AgentGymRefused, GymError

__all__ = ["AgentGymEnvironment", "AgentGymFactory", "AgentGymRefused", "GymEpisode", "GymError"]
