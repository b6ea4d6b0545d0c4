"""REST: datasets, training jobs, checkpoints and settings."""
