"""Console pages of training: jobs, the launch form, checkpoints, and what is shared."""
