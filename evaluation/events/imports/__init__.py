"""Files of other trainers, as trajectories."""
