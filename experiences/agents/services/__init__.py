"""Writes of agents, model endpoints, tool servers and datasets."""
