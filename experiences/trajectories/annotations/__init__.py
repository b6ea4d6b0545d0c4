"""Annotations of trajectories."""
