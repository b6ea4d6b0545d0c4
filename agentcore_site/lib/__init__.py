"""Helpers of every app: errors, registries, checks of values and rows, storage."""
