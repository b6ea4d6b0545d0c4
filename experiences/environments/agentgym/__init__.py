"""AgentGym: worlds behind an environment server that is spoken to over HTTP, in either of its two dialects."""

from experiences.environments.agentgym.environment import AgentGymEnvironment, AgentGymFactory
from experiences.environments.agentgym.episode import GymEpisode
from experiences.environments.agentgym.wire import GymError, Refused

__all__ = ["AgentGymEnvironment", "AgentGymFactory", "GymEpisode", "GymError", "Refused"]
