"""Rewards on trajectories that were recorded already."""
