"""Writes of training, split by noun: runs, execution, checkpoints."""
