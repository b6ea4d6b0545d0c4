"""Queries of a run: uploaded, split, pooled."""
