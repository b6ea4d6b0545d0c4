"""Writes of agents, model endpoints and datasets."""
