"""Agents, with model endpoints, tools, environments, datasets."""
