"""Exports of trajectories: formats, streams in constant memory, and files that a job writes for later."""
