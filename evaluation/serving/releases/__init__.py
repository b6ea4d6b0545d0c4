"""Releases: what an agent is in production, as a value with a digest."""
