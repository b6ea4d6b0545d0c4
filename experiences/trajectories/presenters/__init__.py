"""What pages of trajectories say."""
