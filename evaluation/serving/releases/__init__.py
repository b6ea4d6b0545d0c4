"""Releases: the agent in production, as a value with a digest."""
