"""Rollouts of agents: environments, runtimes, tools, rewards, and what collects one attempt after the other. Pure."""
