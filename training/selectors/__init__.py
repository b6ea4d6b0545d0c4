"""Reads of training."""
