"""What experiences are, how they are learned from rollouts, guarded, and told to an agent. Pure."""
