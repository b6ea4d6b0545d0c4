"""What people note on trajectories."""
