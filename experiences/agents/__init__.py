"""Agents, and what they need: model endpoints, tools, environments, datasets."""
