"""Texts of the pages of trajectories."""
