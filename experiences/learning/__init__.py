"""What is learned from rollouts: lessons of training, items of playbooks. Pure."""
