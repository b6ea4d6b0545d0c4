"""Learning from rollouts: lessons of training, items of playbooks. Pure."""
