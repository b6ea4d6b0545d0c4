"""Estimates of a run's cost and duration."""
