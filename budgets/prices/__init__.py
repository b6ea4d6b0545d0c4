"""Costs of model calls: arithmetic, and prices from a file."""
