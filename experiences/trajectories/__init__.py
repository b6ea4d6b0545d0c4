"""Recorded rollouts: stored, listed, shown, exported, scored again."""
